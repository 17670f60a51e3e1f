// 2,000 jobs waiting for 20 a second under a limit that is shared in Redis, 50 worker processes.
import { sharedFarBelow } from '../shared.mjs'

export default sharedFarBelow({ name: 'shared-low-50', workers: 50 })
