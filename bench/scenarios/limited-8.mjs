// 2,000 jobs at 200 a second, 8 worker processes.
import { drainedAt } from '../limited.mjs'

export default drainedAt({ name: 'limited-8', workers: 8 })
