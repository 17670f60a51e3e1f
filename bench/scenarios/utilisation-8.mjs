// Which part of 200 a second reaches a vendor that all jobs call, from 8 worker processes.
import { usedAt } from '../utilisation.mjs'

export default usedAt({ name: 'utilisation-8', workers: 8 })
