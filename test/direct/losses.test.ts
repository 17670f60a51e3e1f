/** Messages that a worker without a store hands over, repeats, or puts aside: none is lost, and none is executed more often than it must. */
import type { GetMessage } from 'amqplib'
import { beforeAll, describe, expect, it, type TestContext } from 'vitest'
import { z } from 'zod'
import { callOf } from '../../src/absorb/call.ts'
import { Results } from '../../src/absorb/results.ts'
import type { Incoming } from '../../src/amqp/broker.ts'
import type { Properties } from '../../src/amqp/publisher.ts'
import { signature } from '../../src/celery/signature.ts'
import { blank } from '../../src/celery/task-message.ts'
import type { WireMessage } from '../../src/celery/wire.ts'
import { systemClock } from '../../src/core/clock.ts'
import { StoreError } from '../../src/core/errors.ts'
import { silent } from '../../src/core/log.ts'
import { Ends } from '../../src/direct/ends.ts'
import { type Entry, entryOf, keyOf } from '../../src/direct/intake.ts'
import { type AnyTask, label, limit, snooze, task } from '../../src/index.ts'
import { openWire } from '../absorb/stage.ts'
import { startProxy } from '../servers/proxy.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'
import { direct } from './stage.ts'

const input = z.unknown()
const json = { contentType: 'application/json', contentEncoding: 'utf-8' }
let url: string
beforeAll(async () => {
  url = (await freshBroker()).url
})

/** A task that runs until it is released. */
function gated(name: string) {
  const gate = { begun: 0, release: () => {} }
  const released = new Promise<void>((resolve) => (gate.release = resolve))
  const run = async () => {
    gate.begun++
    await released
  }
  return { gate, task: task(name, { input, run }) }
}

/** Starts a worker with one slot, in which a task runs, and sends it another one, which waits. */
async function busy(context: TestContext, tasks: readonly AnyTask[], [name, args]: [string, unknown[]], amqp = url) {
  const wire = await openWire(url, context)
  const held = gated('held')
  // A worker reads a message ahead for each queue.
  const worker = await direct(context, [held.task, ...tasks], {
    celeryBroker: amqp,
    concurrency: 1,
    celery: ['celery', 'beside'],
    // What runs may take long on a busy machine.
    grace: '10m',
  })
  await wire.send('held')
  await until(() => held.gate.begun === 1, 'it runs')
  const id = await wire.sendTo('beside', name, args)
  await until(() => worker.running === 2, 'the other one waits')
  return { wire, worker, id, release: held.gate.release }
}

describe('a message that waits for a slot', () => {
  it('goes to another worker when its own stops, and is no call that may have been made', async (context) => {
    const seen: [number, boolean][] = []
    const once = task('once', {
      input,
      mode: 'at-most-once',
      run: (_, { attempt, ambiguous }) => void seen.push([attempt, ambiguous]),
    })
    const { worker, release, wire, id } = await busy(context, [once], ['once', []])
    const stopped = worker.stop()
    await direct(context, [once], { celeryBroker: url, celery: ['beside'] })
    expect(await wire.result(id)).toMatchObject({ state: 'SUCCESS' })
    expect(seen).toEqual([[1, false]])
    release()
    await stopped
  })

  it('is not begun here when its connection is lost, and another worker has it', async (context) => {
    const proxy = await startProxy({ port: Number(new URL(url).port) })
    context.onTestFinished(() => proxy.close())
    const calls: string[] = []
    const noting = (who: string) => task('note', { input, retry: { base: 1, max: 1 }, run: () => void calls.push(who) })
    const { worker, release } = await busy(context, [noting('first')], ['note', []], proxy.url(url))
    await proxy.refuse()
    proxy.reset()
    const other = await direct(context, [noting('other')], { celeryBroker: url, celery: ['beside'] })
    await until(() => calls.length > 0, 'the other worker has executed it')
    release()
    await proxy.pass()
    await until(() => worker.running === 0, 'the first one has gone on')
    expect(calls).toEqual(['other'])
    expect(other.counts.begun).toBe(1)
  })

  it('is not begun any more when it is revoked', async (context) => {
    const note = task('note', { input, run: () => 'noted' })
    const { worker, release, wire, id } = await busy(context, [note], ['note', []])
    const control = { method: 'revoke', arguments: { task_id: id }, destination: null }
    await wire.broker.publish({
      exchange: 'celery.pidbox',
      routingKey: '',
      body: Buffer.from(JSON.stringify(control)),
      properties: { contentType: 'application/json', contentEncoding: 'utf-8' },
    })
    expect(await wire.result(id)).toMatchObject({ state: 'REVOKED' })
    release()
    await until(() => worker.running === 0, 'the other one has ended')
  })
})

describe('a message', () => {
  it('without an id is no other one without an id', () => {
    const of = (body: string) => ({ body: Buffer.from(body), properties: { headers: {} } }) as unknown as Incoming
    expect(keyOf(of('{"id":"a"}'), 'celery')).not.toBe(keyOf(of('{"id":"b"}'), 'celery'))
    expect(keyOf(of('{"id":"a"}'), 'celery')).toBe(keyOf(of('{"id":"a"}'), 'celery'))
  })

  it('that cannot be sent again is put aside, and not tried for ever', async (context) => {
    const wire = await openWire(url, context)
    const again = task('again', {
      input,
      retry: { attempts: 5, base: 1, max: 1 },
      run: () => {
        throw new RangeError('boom')
      },
    })
    const worker = await direct(context, [again], { celeryBroker: url })
    // Almost as many bytes as the client can write: the note of its attempts has no room.
    const more = Object.fromEntries(['a', 'b', 'c'].map((name) => [name, 'x'.repeat(21_800)]))
    await wire.raw({ ...json, headers: { task: 'again', id: 'full', ...more }, body: Buffer.from('[[],{},{}]') })
    await wire.park()
    await until(() => wire.reasons.length === 1, 'it is parked')
    await until(() => worker.running === 0, 'nothing is in hand')
    expect(worker.counts.begun).toBe(1)
  })

  it('waits also when somebody has deleted the queue in which it would wait', async (context) => {
    const wire = await openWire(url, context)
    const twice = task('twice', {
      input,
      retry: { attempts: 2, base: 1, max: 1 },
      run: async (_, { attempt }) => {
        if (attempt > 1) return
        await wire.broker.use((channel) => channel.deleteQueue('sluice.delay:0:50'))
        throw new RangeError('boom')
      },
    })
    await direct(context, [twice], { celeryBroker: url })
    expect(await wire.result(await wire.send('twice'))).toMatchObject({ state: 'SUCCESS' })
  })

  it('that is put off for longer than the broker can let it wait begins no sooner, when it comes back before', async (context) => {
    const wire = await openWire(url, context)
    let begun = 0
    const nap = task('nap', {
      input,
      run: () => {
        begun++
        throw snooze('5h')
      },
    })
    await direct(context, [nap], { celeryBroker: url })
    await wire.send('nap')
    const waits = async () => wire.broker.use((channel) => channel.get('sluice.delay:8:9830400', { noAck: true }))
    for (let round = 0; round < 2; round++) {
      let found: Awaited<ReturnType<typeof waits>> = false
      await until(async () => (found = await waits()) !== false, 'it waits, as long as it can')
      const { content: body, properties } = found as unknown as GetMessage
      const { contentType, contentEncoding, headers, correlationId } = properties
      await wire.broker.publish({
        routingKey: 'celery',
        body,
        properties: { contentType, contentEncoding, headers, correlationId } as Properties,
      })
    }
    expect(begun).toBe(1)
  })

  it('has no time limit of 0, as with Celery', async (context) => {
    const wire = await openWire(url, context)
    const slow = task('slow', {
      input,
      run: async (_, { signal }) => {
        const sinceMs = performance.now()
        await until(() => performance.now() > sinceMs + 30, 'a limit would be over')
        signal.throwIfAborted()
      },
    })
    await direct(context, [slow], { celeryBroker: url })
    expect(await wire.result(await wire.send('slow', [], { hardLimitS: 0 }))).toMatchObject({ state: 'SUCCESS' })
  })
})

/** What Redis, or the broker, fails to take for the first time. */
function flaky() {
  let failures = 1
  return async () => {
    if (failures-- > 0) throw new StoreError('SLUICE_REDIS_UNREACHABLE', 'it is away')
    return null
  }
}

const common = { clock: systemClock, log: silent }
const sentNothing = { consume: undefined, listen: undefined, announce: undefined, close: undefined } as never

const boom = { reason: 'exhausted', error: '{"message":"boom"}' }

/** The ends of messages on a broker that sends in this way. */
function endsOn(broker: object): Ends {
  const all = { ...(sentNothing as object), ...broker } as never
  const results = new Results({ ...common, broker: all, redis: undefined, queueOf: () => undefined })
  const presence = { name: 'test', events: { sendEnd() {} } } as never
  return new Ends({ broker: {} as never, celery: all, results, presence, ...common, tracksStarted: false, parks: true })
}

/** A message of a task with `onFailed`, with these headers. */
function entryOfLost(headers: object): Entry {
  const lost = task('lost', { input, run: () => {}, onFailed: () => {} })
  const message = { ...blank, id: 'a', task: 'lost', rootId: 'a', replyTo: 'replies' }
  const incoming = { body: Buffer.from('[[],{},{}]'), properties: { headers } } as unknown as Incoming
  return entryOf(incoming, message, {
    key: 'a',
    queue: 'celery',
    isAgain: false,
    tasks: new Map([['lost', lost]]),
    labels: {},
    nowMs: 0,
  })
}

describe('an end that cannot be sent at once', () => {
  it('sends what follows a result once', async () => {
    const sent: string[] = []
    const broker = {
      ...(sentNothing as object),
      send: async () => void sent.push('next'),
      reply: async () => {},
    } as never
    const call = callOf({ ...blank, id: 'a', task: 'a', rootId: 'a', chain: [signature('next')] }, 'celery')
    const fails = flaky()
    const send = async (_: string, [, , key]: readonly string[]) => [(await fails()) ?? key]
    const results = new Results({ ...common, broker, redis: { send } as never, queueOf: () => undefined })
    const result = { id: 'a', state: 'SUCCESS', value: 1, traceback: undefined } as const
    await expect(results.finish(call, result)).rejects.toThrow('it is away')
    await results.finish(call, result)
    expect(sent).toEqual(['next'])
  })

  it('sends the other tasks that follow a result if one can be neither sent nor refused', async () => {
    const sent: string[] = []
    const unsendable = async () => {
      throw new RangeError('its id is too long')
    }
    const broker = {
      ...(sentNothing as object),
      send: async ({ headers }: { headers: Record<string, unknown> }) => {
        if (headers['task'] === 'bad') await unsendable()
        sent.push(String(headers['task']))
      },
      reply: unsendable,
    } as never
    const results = new Results({ ...common, broker, redis: undefined, queueOf: () => undefined })
    const bad = signature('bad', [], { options: { reply_to: 'replies' } })
    const call = callOf({ ...blank, id: 'a', task: 'a', rootId: 'a', callbacks: [bad, signature('good')] }, 'celery')
    await results.finish(call, { id: 'a', state: 'SUCCESS', value: 1, traceback: undefined })
    expect(sent).toEqual(['good'])
  })

  it('sends the job of onFailed once, and one result', async () => {
    const sent: string[] = []
    const fails = flaky()
    const ends = endsOn({
      reply: async () => void sent.push('result'),
      send: async (_: unknown, { routingKey }: { routingKey: string }) => {
        if (routingKey.endsWith('.parked')) await fails()
        sent.push(routingKey)
      },
    })
    const entry = entryOfLost({})
    const failed = () => ends.endFailed(entry, entry.progress, boom)
    await expect(failed()).rejects.toThrow('it is away')
    await failed()
    expect(sent).toEqual(['result', 'celery.parked', 'celery'])
  })
})

it('a failed message that was put back by hand sends a job of onFailed of its own', async () => {
  const sent: WireMessage[] = []
  const ends = endsOn({
    reply: async () => {},
    send: async (message: WireMessage) => void sent.push(message),
  })
  for (let headers = {}; sent.length < 6; headers = sent.at(-2)?.headers ?? {}) {
    const entry = entryOfLost(headers)
    await ends.endFailed(entry, entry.progress, boom)
  }
  const jobs = sent.filter(({ headers }) => headers['parent_id'] === 'a')
  expect(jobs).toHaveLength(3)
  expect(new Set(jobs.map(({ headers }) => headers['id'])).size).toBe(3)
})

it('a worker that lacks the label of a limit names it', async (context) => {
  const byTeam = task('by-team', { input, limits: [limit('team', { rate: '1/s', by: label('team') })], run: () => 0 })
  await expect(direct(context, [byTeam], { celeryBroker: url, redis: 'redis://127.0.0.1:1/0' })).rejects.toMatchObject({
    code: 'SLUICE_BAD_LABEL',
  })
})
