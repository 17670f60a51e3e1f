/** The outlet of stock Celery workers for the suite of outlets: each one it makes has queues, and so workers, of its own. */
import { openBroker } from '../../src/amqp/broker.ts'
import type { Db } from '../../src/db/db.ts'
import { storeOn } from '../../src/db/store.ts'
import { celeryOutlet } from '../../src/remote/open.ts'
import { Rulebook } from '../../src/tasks/rule.ts'
import type { AnyTask } from '../../src/tasks/task.ts'
import { openStage, type Stage } from './stage.ts'

let stage: Promise<Stage> | undefined

/** Ends the workers, if there are any. */
export async function closeStock(): Promise<void> {
  await (await stage)?.close()
}

/** Makes an outlet with so many places, two of them for the task `few`. `began`: is called for each call that begins */
export async function makeStock(
  places: number,
  began: (call: { id: string; attempt: number }) => void,
  tasks: readonly AnyTask[],
  db: Db,
) {
  const { url, queue, seenSince } = await (stage ??= openStage())
  const store = storeOn(db)
  const broker = await openBroker({ url, name: 'test', log: store.log })
  const remote: AnyTask[] = []
  for (const task of tasks) {
    const slots = task.name === 'few' ? 2 : Math.max(1, places - 2)
    remote.push({ ...task, remote: { queue: await queue(), slots } })
  }
  const own = {
    store,
    rulebook: new Rulebook(),
    peer: undefined,
    broker,
    backend: 'rpc://',
    tasks: remote,
    others: new Set<string>(),
  }
  const outlet = await celeryOutlet(own)
  await outlet.open()
  const seen = seenSince()
  const timer = setInterval(() => seen().forEach(began), 10)
  return {
    outlet: outlet.for,
    async close() {
      clearInterval(timer)
      await outlet.close()
      await broker.close()
    },
  }
}
