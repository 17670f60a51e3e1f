// 100,000 keys.
import { drainOfKeys } from '../keys.mjs'

export default drainOfKeys({ name: 'keys-100000', keys: 100_000, jobs: 300_000, quickJobs: 20_000 })
