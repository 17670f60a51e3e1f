// Sluice on PostgreSQL and Redis, with its limit published: other programs can take from it.
import { sluiceSharing } from '../shared.mjs'

export default sluiceSharing({ name: 'sluice-redis', published: true })
