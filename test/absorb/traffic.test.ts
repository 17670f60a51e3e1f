/** The traffic that workers which read Celery's queues log at their end, with a store and without one. */
import { expect, it, onTestFinished } from 'vitest'
import { z } from 'zod'
import { openProducer } from '../../src/celery/index.ts'
import { logTo } from '../../src/core/log.ts'
import { task } from '../../src/index.ts'
import { kinds, startHost } from '../direct/brokers.ts'
import { direct } from '../direct/stage.ts'
import { until } from '../until.ts'
import { absorb } from './stage.ts'

it.for(kinds.flatMap((kind) => [true, false].map((hasStore) => ({ kind, hasStore }))))(
  'each message of $kind is counted once, and is shown for each call at the end (with a store: $hasStore)',
  async ({ kind, hasStore }, context) => {
    const host = await startHost(kind)
    onTestFinished(() => host.close())
    const lines: string[] = []
    const log = logTo((_, text) => lines.push(text))
    const add = task('add', { input: z.array(z.number()), run: ([a = 0, b = 0]) => a + b })
    const worker = hasStore
      ? (await absorb(host.url, [add], context, {}, { log })).sluice
      : await direct(context, [add], { celeryBroker: host.url, log })
    const producer = await openProducer({ broker: host.url, results: kind === 'Redis' ? host.url : 'rpc' })
    onTestFinished(() => producer.close())
    const calls = await Promise.all([1, 2, 3, 4].map((n) => producer.delay('add', [n, n])))
    expect(await Promise.all(calls.map((call) => call.result()))).toEqual([2, 4, 6, 8])
    await until(async () => (await host.depth('celery')) === 0, 'none is left')
    await ('stop' in worker ? worker.stop() : worker.close())
    // Results in Redis are keys.
    const sent = kind === 'Redis' ? 0 : 4
    const each = `${kind === 'Redis' ? '0.00' : '1.00'}, 1.00 and 1.00 for each of 4 ${hasStore ? 'calls' : 'tasks'}`
    const said = `has published ${sent} messages, received 4 and settled 4: ${each}`
    expect(lines.filter((line) => line.includes('has published'))).toEqual([expect.stringContaining(said)])
  },
)
