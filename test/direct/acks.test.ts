/** When a worker without a store acknowledges a message: what it holds meanwhile, and what is lost with it. */
import { once } from 'node:events'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { openBroker } from '../../src/amqp/broker.ts'
import { openControl, openProducer } from '../../src/celery/index.ts'
import { silent } from '../../src/core/log.ts'
import { snooze, task, workDirectly } from '../../src/index.ts'
import type { Owner } from '../fleet/children.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { startRedis } from '../servers/redis.ts'
import { copies } from '../rows.ts'
import { until } from '../until.ts'
import { kinds, startHost } from './brokers.ts'
import { startMember, startRecorder } from './fleet.ts'
import { direct } from './stage.ts'

/** A task that runs until it is released. */
function gated() {
  let release = () => {}
  const released = new Promise<void>((resolve) => (release = resolve))
  const begun: string[] = []
  const held = task('held', {
    input: z.unknown(),
    run: (_, { job }) => {
      begun.push(job.id)
      return released
    },
  })
  return { held, begun, release }
}

describe.concurrent('a worker without a store', () => {
  it.for([
    ['late', 1, 10],
    ['early', 1, 20],
    ['late', 2, 20],
    ['early', 2, 30],
  ] as const)('of ten slots that acknowledges %s, with multiplier %i, holds %i messages', async (how, context) => {
    const [acks, prefetchMultiplier, most] = how
    const { url } = await freshBroker()
    const [producer, door, control] = await Promise.all([
      openProducer({ broker: url, results: 'none' }),
      openBroker({ url, name: 'test', log: silent }),
      openControl({ broker: url }),
    ])
    context.onTestFinished(async () => void (await Promise.all([producer.close(), door.close(), control.close()])))
    const { held, begun, release } = gated()
    await door.declare({ queues: [{ name: 'celery' }] })
    for (let n = 0; n < 40; n++) await producer.delay('held', [n])
    const worker = await direct(context, [held], { celeryBroker: url, concurrency: 10, acks, prefetchMultiplier })
    await until(() => worker.running >= most && begun.length >= 10, 'it holds what it may')
    // What the broker has sent beyond that has arrived before these answers.
    const acknowledged = async (kind: string) => {
      const answers = await control.request(kind, {}, { answers: 1, within: '60s' })
      const calls = Object.values(answers).flat() as { acknowledged: boolean }[]
      return calls.map((call) => call.acknowledged)
    }
    expect(await acknowledged('active')).toEqual(copies(10, acks === 'early'))
    expect(await acknowledged('reserved')).toEqual(copies(most - 10, false))
    const left = await door.use(async (channel) => (await channel.checkQueue('celery')).messageCount)
    expect({ running: worker.running, left }).toEqual({ running: most, left: 40 - most })
    release()
    await until(() => worker.counts.done === 40, 'all are done')
  })

  it('does not begin what has expired while it waited for a slot', async (context) => {
    const { url } = await freshBroker()
    const producer = await openProducer({ broker: url })
    context.onTestFinished(() => producer.close())
    const { held, begun, release } = gated()
    await direct(context, [held], { celeryBroker: url, concurrency: 1, acks: 'early' })
    const running = await producer.delay('held')
    await until(() => begun.length === 1, 'it runs')
    const expires = new Date(Date.now() + 500)
    const late = await producer.delay('held', [], { expires })
    await until(() => Date.now() > expires.getTime(), 'it has expired')
    release()
    await running.result()
    await expect(late.result()).rejects.toMatchObject({ code: 'SLUICE_CELERY_REVOKED' })
    expect(begun.length).toBe(1)
  })

  it('that acknowledges early begins no more while a thousand results cannot be sent', async (context) => {
    const [{ url }, results] = await Promise.all([freshBroker(), startRedis()])
    context.onTestFinished(() => results.close())
    const [producer, door] = await Promise.all([
      openProducer({ broker: url, results: 'none' }),
      openBroker({ url, name: 'test', log: silent }),
    ])
    context.onTestFinished(async () => void (await Promise.all([producer.close(), door.close()])))
    const empty = task('empty', { input: z.unknown(), run: () => undefined })
    const how = { celeryBroker: url, celeryResults: results.url, acks: 'early', concurrency: 5 } as const
    const worker = await direct(context, [empty], how)
    await results.kill()
    await Promise.all(Array.from({ length: 1_200 }, () => producer.delay('empty')))
    await until(() => worker.counts.begun >= 1_000, 'a thousand have ended')
    const waiting = async () => (await door.use((channel) => channel.checkQueue('celery'))).messageCount
    let [begun, sinceMs] = [0, 0]
    await until(() => {
      if (worker.counts.begun > begun) [begun, sinceMs] = [worker.counts.begun, performance.now()]
      return performance.now() - sinceMs > 500
    }, 'no more begin')
    expect(begun).toBeLessThanOrEqual(1_005)
    expect((await waiting()) + worker.running).toBe(1_200)
    await results.start()
    await until(() => worker.counts.done === 1_200 && worker.running === 0, 'all are done')
  })

  describe.each(kinds)('over %s', (kind) => {
    const startOwn = async (context: Owner) => {
      const host = await startHost(kind)
      context.onTestFinished(() => host.close())
      return host
    }

    it.for(['late', 'early'] as const)(
      'that acknowledges %s and is killed has its message executed again only if that was not acknowledged',
      async (acks, context) => {
        const [host, redis, vendor] = await Promise.all([startOwn(context), startRedis(), startRecorder()])
        context.onTestFinished(() => redis.close())
        context.onTestFinished(() => void vendor.close())
        const url = { broker: host.url, redis: redis.url, vendor: vendor.url, visible: '3s' }
        const start = async (crashAt: string) => {
          const child = await startMember(url, '20/s', 5, crashAt, acks)
          context.onTestFinished(() => void child.kill('SIGKILL'))
          return child
        }
        const producer = await openProducer({ broker: host.url, results: 'none' })
        context.onTestFinished(() => producer.close())
        // Between the end of its task and the acknowledgement of that.
        const first = await start('direct.settled')
        await producer.delay('free', [1])
        await once(first, 'exit')
        await start('')
        await producer.delay('free', [2])
        const called = () => vendor.arrivals.map(({ n, isAgain }) => `${n}${isAgain ? ' again' : ''}`)
        await until(() => called().includes('2'), 'the second one was called')
        if (acks === 'late') await until(() => called().includes('1 again'), 'the first one is called again', 20_000)
        expect(called().toSorted()).toEqual(acks === 'late' ? ['1', '1 again', '2'] : ['1', '2'])
      },
    )

    it('that acknowledges early repeats a task that fails, and what its handler puts off', async (context) => {
      const host = await startOwn(context)
      const seen: [number, boolean][] = []
      const flaky = task('flaky', {
        input: z.unknown(),
        retry: { base: 1, max: 1 },
        run: (_, { attempt, ambiguous }) => {
          seen.push([attempt, ambiguous])
          if (seen.length === 1) throw new RangeError('boom')
          if (seen.length === 2) throw snooze(1)
        },
      })
      const producer = await openProducer({ broker: host.url, results: 'none' })
      context.onTestFinished(() => producer.close())
      const worker = await direct(context, [flaky], { celeryBroker: host.url, acks: 'early' })
      await producer.delay('flaky')
      await until(() => worker.counts.done === 1 && worker.running === 0, 'it has succeeded')
      expect(seen).toEqual([
        [1, false],
        [2, false],
        [2, false],
      ])
      await until(async () => (await host.depth('celery')) === 0, 'nothing is left')
    })
  })
})

it('a worker without a store knows no other time to acknowledge', async () => {
  const { held } = gated()
  const wrong = workDirectly([held], { celeryBroker: 'amqp://127.0.0.1:1', celery: ['celery'], acks: 'never' as never })
  await expect(wrong).rejects.toMatchObject({ code: 'SLUICE_BAD_OPTION' })
})

it('a worker without a store reads ahead at least one message for each slot, and not without bound', async () => {
  const { held } = gated()
  for (const prefetchMultiplier of [0, -1, 1.5, 1_001])
    await expect(
      workDirectly([held], { celeryBroker: 'amqp://127.0.0.1:1', celery: ['celery'], prefetchMultiplier }),
    ).rejects.toMatchObject({ code: 'SLUICE_BAD_OPTION', message: expect.stringContaining('prefetchMultiplier') })
})
