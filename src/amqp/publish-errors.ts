/** Decides by the error of a message that was published whether a queue has it. */
import { codeOf } from '../core/errors.ts'

/** True if no queue took the message. */
export function isUnrouted(error: unknown): boolean {
  return codeOf(error) === 'SLUICE_BROKER_UNROUTED'
}

/** True if the server certainly does not have the message. */
export function isUnsent(error: unknown): boolean {
  const codes = ['SLUICE_BROKER_FULL', 'SLUICE_BROKER_UNREACHABLE', 'SLUICE_BROKER_UNROUTED', 'SLUICE_BROKER_REFUSED']
  return codes.includes(String(codeOf(error)))
}

/** Publishes. If no queue takes the message, because somebody has deleted the queue, calls `declare` and publishes again. */
export async function publishOrDeclare(
  publish: () => Promise<unknown>,
  declare: () => Promise<unknown>,
): Promise<void> {
  try {
    await publish()
  } catch (error) {
    if (!isUnrouted(error)) throw error
    await declare()
    await publish()
  }
}
