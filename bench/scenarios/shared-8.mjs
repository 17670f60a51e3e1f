// 5,000 jobs at 100 a second under a limit that is shared in Redis, 8 worker processes.
import { sharedAt } from '../shared.mjs'

export default sharedAt({ name: 'shared-8', workers: 8 })
