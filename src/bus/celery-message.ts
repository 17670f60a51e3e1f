/** Events as Celery-AMQP-Events writes them: messages of Celery tasks, whose names are the types. */
import type { Message, Properties } from '../amqp/publisher.ts'
import type { Headers } from '../amqp/headers.ts'
import { argumentsOf, inputOf } from '../celery/arguments.ts'
import { readJson } from '../celery/json.ts'
import { blank, taskOf, withoutBrokers, writeTask } from '../celery/task-message.ts'
import { messageOf } from '../celery/transport.ts'
import type { CloudEvent } from '../events/envelope.ts'
import type { EventRow } from '../events/row.ts'
import { celeryExchange } from './celery-names.ts'
import { again } from './names.ts'

/** True for the message of a task. */
export function isTask({ headers }: Pick<Properties, 'headers'>): boolean {
  return typeof headers?.['task'] === 'string' && typeof headers['id'] === 'string'
}

/** Returns the id of a message's event; undefined: it has none. */
export function idOf(properties: Pick<Properties, 'headers' | 'messageId'>): string | undefined {
  const id = properties.headers?.['id']
  return isTask(properties) && typeof id === 'string' ? id : properties.messageId
}

/** Returns the message of a fresh event. */
export async function taskMessageOf({ id, type, text }: EventRow, nowMs: number): Promise<Message> {
  const { data } = JSON.parse(text) as CloudEvent
  const task = { ...blank, ...argumentsOf(data), id, task: type, rootId: id, ignoreResult: true }
  return { exchange: celeryExchange, routingKey: type, ...messageOf(await writeTask(task, { nowMs })), again }
}

/** Returns the headers of a task that is tried again. */
export function retryHeaders({ headers = {} }: Pick<Properties, 'headers'>, retries: number): Headers {
  return { ...(withoutBrokers(headers) as Headers), retries }
}

/** Reads the event of a task's message. @throws SluiceError SLUICE_CELERY_MESSAGE; SyntaxError */
export function eventOfTask(text: string, { headers = {} }: Pick<Properties, 'headers'>, time: string): CloudEvent {
  const { id, task, origin, args, kwargs } = taskOf({ headers, body: Buffer.alloc(0) }, readJson(text))
  return {
    specversion: '1.0',
    id,
    source: `/celery/${encodeURIComponent(origin ?? '')}`,
    type: task,
    time,
    datacontenttype: 'application/json',
    data: inputOf({ args, kwargs }),
  }
}
