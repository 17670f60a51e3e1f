// 1,000 keys.
import { drainOfKeys } from '../keys.mjs'

export default drainOfKeys({ name: 'keys-1000', keys: 1_000, jobs: 50_000, quickJobs: 10_000 })
