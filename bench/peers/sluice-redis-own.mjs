// Sluice on PostgreSQL and Redis, its limit not published: only its own processes take of it.
import { sluiceSharing } from '../shared.mjs'

export default sluiceSharing({ name: 'sluice-redis-own', published: false })
