// 2,000 jobs waiting for 20 a second, 8 worker processes.
import { farBelow } from '../limited.mjs'

export default farBelow({ name: 'limited-low-8', workers: 8 })
