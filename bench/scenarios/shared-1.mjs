// 5,000 jobs at 100 a second under a limit that is shared in Redis, 1 worker process.
import { sharedAt } from '../shared.mjs'

export default sharedAt({ name: 'shared-1', workers: 1 })
