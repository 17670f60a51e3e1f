// 2,000 jobs at 200 a second, 1 worker process.
import { drainedAt } from '../limited.mjs'

export default drainedAt({ name: 'limited-1', workers: 1 })
