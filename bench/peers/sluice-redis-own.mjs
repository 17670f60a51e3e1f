// Sluice on PostgreSQL and Redis, with its limit not published: only its own processes take from it.
import { sluiceSharing } from '../shared.mjs'

export default sluiceSharing({ name: 'sluice-redis-own', published: false })
