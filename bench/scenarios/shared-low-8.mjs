// 2,000 jobs waiting for 20 a second under a limit that is shared in Redis, 8 worker processes.
import { sharedFarBelow } from '../shared.mjs'

export default sharedFarBelow({ name: 'shared-low-8', workers: 8 })
