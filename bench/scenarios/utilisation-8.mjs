// 4,000 jobs at 200 a second, 8 worker processes: long enough to show which part of the rate is used, besides what limited-8 shows.
import { drainedAt } from '../limited.mjs'

export default drainedAt({ name: 'utilisation-8', workers: 8, jobs: 4_000 })
