/** A property that takes too long ends by itself, since one that fails by the test's time-out shows no counterexample. */
import fc from 'fast-check'
import { beforeEach } from 'vitest'

beforeEach(({ task }) => {
  fc.configureGlobal({ interruptAfterTimeLimit: 0.9 * task.timeout, markInterruptAsFailure: true })
})
