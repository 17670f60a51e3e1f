/** Options of Node for the processes of tests. */
import { isLong } from './long.ts'

/**
 * For a process that lives for seconds: V8 would spend more on optimising WebAssembly (the embedded engine, and the parser of `fetch`)
 * and the code of Sluice than such a process gains by it.
 */
export const brief = ['--liftoff-only', '--no-opt']

/** For a member of a fleet. In the long form it lives for minutes, and some tests measure its rate. */
export const member = isLong ? [] : brief
