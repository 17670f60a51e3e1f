/** Puts aside messages that cannot be carried out, with the reason. */
import { StoreError } from '../core/errors.ts'
import { writeJson } from '../celery/json.ts'
import { type TaskMessage, withoutBrokers } from '../celery/task-message.ts'
import { parkedKey } from '../celery/unacked.ts'
import type { WireMessage } from '../celery/wire.ts'
import type { Log } from '../core/log.ts'
import type { CeleryBroker } from './broker.ts'

const reasonMax = 1_000
/** Headers that a parked message keeps if there is no room for all of them, in bytes. */
const headerMax = 500

/** The queue of messages of a queue that cannot be carried out. */
function parkingOf(queue: string): string {
  return `${queue}.parked`
}

/** Puts a copy of a message aside. Resolves to its queue when the broker has it; the errors are those of the broker. */
export async function park(
  { broker, log }: { broker: CeleryBroker; log: Log },
  message: WireMessage,
  queue: string,
  reason: string,
): Promise<string> {
  const parking = parkingOf(queue)
  const send = async (one: WireMessage, to: string, why: string) => {
    await broker.send(addReason(one, why), { exchange: '', routingKey: to })
    return to
  }
  const short = () => dropLongHeaders(message)
  try {
    return await send(message, parking, reason).catch((error: unknown) => {
      if (error instanceof StoreError) throw error
      return send(short(), parking, reason)
    })
  } catch (error) {
    if (error instanceof StoreError) throw error
    const parked = await send(short(), parkedKey, `from the queue "${queue}": ${reason}`)
    log.error('a queue for messages that cannot be carried out is refused', { queue: parking, err: error })
    return parked
  }
}

function addReason(message: WireMessage, reason: string): WireMessage {
  return { ...message, headers: { ...withoutBrokers(message.headers), 'x-sluice-reason': reason.slice(0, reasonMax) } }
}

/** The message without headers that are long, or that JSON cannot state. */
function dropLongHeaders(message: WireMessage): WireMessage {
  const isShort = (value: unknown) => {
    try {
      return Buffer.byteLength(writeJson(value, 'a header')) <= headerMax
    } catch {
      return false
    }
  }
  return {
    ...message,
    headers: Object.fromEntries(Object.entries(message.headers).filter(([, value]) => isShort(value))),
  }
}

/** Logs that a message was put aside, in the queue `parked`. @param seen the message, as far as it was read */
export function logParked(
  log: Log,
  queue: string,
  parked: string,
  seen: Pick<TaskMessage, 'task' | 'id'> | undefined,
  reason: string,
) {
  const about = { queue, parked, task: seen?.task, id: seen?.id, reason }
  log.error('a message of a Celery producer cannot be carried out, and is parked', about)
}
