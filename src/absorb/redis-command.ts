/** Distinguishes a Redis that is away from one that refuses a command. */
import { SluiceError, StoreError } from '../core/errors.ts'

/**
 * Runs a command. A client has many errors for a connection that failed; all of them become one, because what was to be sent then
 * is sent again, and must not be dropped. What Redis itself refuses, and what is too deep to be written, stays as it is.
 * @throws StoreError SLUICE_REDIS_UNREACHABLE; the errors of the command
 */
export async function runOnRedis<T>(command: () => Promise<T>): Promise<T> {
  try {
    return await command()
  } catch (error) {
    if (SluiceError.is(error) || !(error instanceof Error)) throw error
    if (error.name === 'ReplyError' || error instanceof RangeError) throw error
    throw new StoreError('SLUICE_REDIS_UNREACHABLE', `Redis did not answer: ${error.message}`, { cause: error })
  }
}
