/** The note about what came before that workers without a store write into a header of a Celery message when they publish it again. */
import { delayHeaderStart } from '../amqp/delays.ts'
import { withoutBrokers } from '../celery/task-message.ts'
import { readIncoming } from '../celery/transport.ts'
import type { WireMessage } from '../celery/wire.ts'
import type { Known } from '../claim/claimed-job.ts'
import type { Incoming } from './broker.ts'

/** The history of a message; a fresh one has none. */
export interface Progress extends Known {
  /** How often its limits have denied it. */
  readonly denied: number
  /** It begins no sooner, wall time in ms. Set if it waits for longer than the broker allows at a time. */
  readonly dueMs?: number
  /** How often it was sent again: no two of its copies are alike. */
  readonly turn: number
  /** How often it was put aside because it had failed, and put back by hand. */
  readonly parked: number
}

/** The header, as JSON. */
export const progressHeader = 'sluice-progress'
/** True in a message that was sent again after a lost connection, so that it may be there twice. */
export const againHeader = 'sluice-again'

const fresh: Progress = {
  attempt: 0,
  failed: 0,
  throttled: 0,
  crashes: 0,
  denied: 0,
  isDoubtful: false,
  turn: 0,
  parked: 0,
}

/** Reads the history of a delivered message. A header that other programs wrote counts as none. */
export function progressOf({ properties }: Pick<Incoming, 'properties'>): Progress {
  const headers: Record<string, unknown> = properties.headers ?? {}
  const text = headers[progressHeader]
  const known = typeof text === 'string' ? parsed(text) : fresh
  return headers[againHeader] === true ? { ...known, isDoubtful: true } : known
}

function parsed(text: string): Progress {
  let found: Partial<Progress> | null
  try {
    found = JSON.parse(text) as Partial<Progress> | null
  } catch {
    return fresh
  }
  const { attempt, failed, throttled, crashes, denied, isDoubtful, turn, parked, dueMs } = { ...fresh, ...found }
  const isOurs = [attempt, failed, throttled, crashes, denied, turn, parked].every(
    (count) => Number.isInteger(count) && count >= 0,
  )
  const due = Number.isSafeInteger(dueMs) ? { dueMs: dueMs as number } : {}
  const counts = { attempt, failed, throttled, crashes, denied, turn, parked, ...due }
  return isOurs ? { ...counts, isDoubtful: isDoubtful === true } : fresh
}

/** Returns the message with its present history, and without the headers that the broker and its waits have added. */
export function copyOf(incoming: Incoming, progress: Progress): WireMessage {
  const wire = readIncoming(incoming)
  const { deliveryMode } = incoming.properties as { deliveryMode?: number }
  const own = Object.entries(withoutBrokers(wire.headers)).filter(
    ([name]) => !name.startsWith(delayHeaderStart) && name !== againHeader,
  )
  // Celery shows it as the number of retries; a message of protocol 1 has it in its body, where nothing here reads it.
  const retries = typeof wire.headers['retries'] === 'number' ? { retries: progress.failed } : {}
  const noted = JSON.stringify({ ...progress, turn: progress.turn + 1 })
  const headers = { ...Object.fromEntries(own), ...retries, [progressHeader]: noted }
  return { ...wire, headers, deliveryMode: deliveryMode === 1 ? 1 : 2 }
}

/** Returns the headers of a message that failed and is put aside: by them it differs from the same message before. */
export function parkedHeaders(incoming: Pick<Incoming, 'properties'>): Record<string, unknown> {
  const progress = progressOf(incoming)
  return { [progressHeader]: JSON.stringify({ ...progress, parked: progress.parked + 1 }) }
}
