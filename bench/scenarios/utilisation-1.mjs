// Which part of 200 a second reaches a vendor that all jobs call, from 1 worker process.
import { usedAt } from '../utilisation.mjs'

export default usedAt({ name: 'utilisation-1', workers: 1 })
