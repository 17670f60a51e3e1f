// 2,000 jobs waiting for 20 a second, 50 worker processes.
import { farBelow } from '../limited.mjs'

export default farBelow({ name: 'limited-low-50', workers: 50 })
