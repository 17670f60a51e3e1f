/** Services of a test over a RabbitMQ. */
import { onTestFinished } from 'vitest'
import { openBroker, type Broker } from '../../src/amqp/broker.ts'
import { silent } from '../../src/core/log.ts'
import { Sluice, type SluiceOptions, type Work } from '../../src/index.ts'
import { atEnd } from '../ends.ts'
import { freshDatabase } from '../servers/database.ts'
import type { Broker as Host } from '../servers/rabbitmq.ts'

let shared: Promise<{ url: string }> | undefined

/** The services of a test file share a database, which only the deliveries of groups with limits need. */
async function store(): Promise<string> {
  if (shared === undefined) atEnd(async () => (shared = undefined))
  shared ??= freshDatabase()
  return (await shared).url
}

/** Opens a program over this RabbitMQ, and with `work` a worker of it. Log lines are kept in `lines`. */
export async function program(amqp: string, more: SluiceOptions = {}, work?: readonly Work[], concurrency = 10) {
  const lines: string[] = []
  const log = {
    debug() {},
    info() {},
    warn: (text: string) => void lines.push(text),
    error: (text: string) => void lines.push(text),
  }
  const sluice = await Sluice.open({ store: await store(), events: 'rabbitmq', amqp, log, ...more })
  onTestFinished(() => sluice.close())
  const worker = work && (await sluice.work(work, { concurrency }))
  return Object.assign(sluice, { lines, worker })
}

/** A connection of a stranger's. */
export async function stranger(url: string): Promise<Broker> {
  const broker = await openBroker({ url, name: 'stranger', log: silent })
  onTestFinished(() => broker.close())
  return broker
}

/**
 * The queues of a virtual host, but for the one with an entry for each service, with how many messages each has, those in hand included.
 * They are read one after the other, by their names: so archives before groups, and groups before the steps of retries.
 */
export async function queuesOf(host: Host): Promise<Map<string, number>> {
  const told = await host.evaluate(
    `[{binary_to_list(element(4, amqqueue:get_name(Q))), M} || ` +
      `Q <- lists:sort(fun(A, B) -> amqqueue:get_name(A) =< amqqueue:get_name(B) end, rabbit_amqqueue:list(<<"${host.name}">>)), ` +
      // A queue may end meanwhile.
      `[{messages, M}] <- [catch rabbit_amqqueue:info(Q, [messages])]]`,
  )
  const all = new Map(
    [...told.matchAll(/\{"([^"]+)",\s*(\d+)\}/g)].map(([, name = '', count]) => [name, Number(count)]),
  )
  all.delete('sluice.services')
  return all
}
