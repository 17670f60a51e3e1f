// Sluice on PostgreSQL and Redis, its limit published: other programs may take of it.
import { sluiceSharing } from '../shared.mjs'

export default sluiceSharing({ name: 'sluice-redis', published: true })
