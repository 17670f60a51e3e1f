// 4,000 jobs at 200 a second, one worker process: long enough to show which part of the rate is used, besides what limited-1 shows.
import { drainedAt } from '../limited.mjs'

export default drainedAt({ name: 'utilisation-1', workers: 1, jobs: 4_000 })
