/** What may happen between reading a message, recording it, acknowledging it and reporting its end. */
import { randomUUID } from 'node:crypto'
import { expect, it, type TestContext } from 'vitest'
import { z } from 'zod'
import { signature } from '../../src/celery/signature.ts'
import { writeRequest, requestExchange } from '../../src/celery/control.ts'
import { publish } from '../../src/celery/transport.ts'
import { rule, Sluice, task } from '../../src/index.ts'
import { freshDatabase } from '../servers/database.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { startRedis } from '../servers/redis.ts'
import { connectRedis } from '../servers/resp.ts'
import { until } from '../until.ts'
import { absorb, openWire } from './stage.ts'

/** Tasks, and what they were called with; `hold` runs until `calls` has 'go'. */
function tasks() {
  const calls: unknown[] = []
  const all = [
    task('note', { input: z.unknown(), run: (input) => void calls.push(input) }),
    task('large', { input: z.unknown(), run: () => 'x'.repeat(200_000) }),
    task('fail', {
      input: z.unknown(),
      retry: { attempts: 1, base: 1, max: 1 },
      run: () => {
        throw new RangeError('boom')
      },
    }),
    task('hold', {
      input: z.unknown(),
      async run(_, { signal }) {
        calls.push('begun')
        await until(() => calls.includes('go') || signal.aborted)
        calls.push(signal.aborted ? 'stopped' : 'ended')
      },
    }),
  ]
  return { all, calls }
}

/** A broker, a wire to it, and a worker, which is started later. */
async function open(context: TestContext) {
  const { url } = await freshBroker()
  const wire = await openWire(url, context)
  const { all, calls } = tasks()
  const revoke = (id: string, more: object = {}, expiresS = 0) => {
    const request = { method: 'revoke', arguments: { task_id: id, ...more } }
    const message = writeRequest(
      { ...request, destination: undefined, ticket: undefined, replyTo: undefined },
      { clock: 1, expiresS },
    )
    return publish(wire.broker, message, { exchange: requestExchange, routingKey: '', mandatory: false })
  }
  return { url, wire, all, calls, revoke, start: () => absorb(url, all, context) }
}

it.concurrent('a message that is delivered again after its expiry is known: its job has the last word', async (context) => {
  const { wire, calls, start } = await open(context)
  const { sluice } = await start()
  const expiresMs = Date.now() + 2_000
  const id = await wire.send('hold', [], { expiresMs })
  await until(() => calls.length === 1, 'it has begun')
  await until(() => Date.now() > expiresMs, 'it would have expired')
  // Its first reader was killed before it acknowledged.
  await wire.send('hold', [], { expiresMs, id })
  const other = await wire.send('note')
  await wire.result(other)
  calls.push('go')
  expect(await wire.result(id)).toMatchObject({ state: 'SUCCESS' })
  expect(wire.replies.filter((one) => one.id === id)).toHaveLength(1)
  expect(await sluice.list({ state: 'done' })).toHaveLength(2)
})

it.concurrent('a message whose reader was killed before it sent the job runs, days later, too', async (context) => {
  const { wire, calls, start } = await open(context)
  const { sluice } = await start()
  const id = randomUUID()
  await sluice.db.query(
    `insert into sluice.celery_call (id, job, call, created_at)
      values ($1, '019a0000-0000-7000-8000-000000000000', '{}', sluice.now() - interval '3 days')`,
    [id],
  )
  await wire.send('note', ['late'], { id })
  expect(await wire.result(id)).toMatchObject({ state: 'SUCCESS' })
  expect(calls).toEqual([['late']])
})

it.concurrent('a message that is delivered again after days is known, though the history of its job is deleted', async (context) => {
  const { wire, all, calls, start } = await open(context)
  const { sluice, worker } = await start()
  const id = await wire.send('note', ['once'])
  await wire.result(id)
  await worker.stop()
  await sluice.db.query(
    `create or replace function sluice.now() returns timestamptz language sql volatile as
      'select clock_timestamp() + interval ''20 days'''`,
  )
  await sluice.prune({ keepDone: '7d' })
  expect(await sluice.list({ state: 'done' })).toEqual([])
  await sluice.work(all, { celery: ['celery'] })
  await wire.send('note', ['again'], { id })
  const other = await wire.send('note', ['other'])
  await wire.result(other)
  expect(calls).toEqual([['once'], ['other']])
  expect(wire.replies.map((one) => one.id)).toEqual([id, other])
})

it.concurrent('a call that is revoked before its message is read does not run', async (context) => {
  const { wire, calls, revoke, start } = await open(context)
  await start()
  const id = randomUUID()
  await revoke(id)
  // What comes behind it on the same way shows that it was obeyed.
  const known = await wire.send('hold')
  await until(() => calls.length === 1, 'it runs')
  await revoke(known, { terminate: true })
  expect(await wire.result(known)).toMatchObject({ state: 'REVOKED' })
  await wire.send('note', ['revoked'], { id })
  expect(await wire.result(id)).toMatchObject({ state: 'REVOKED', value: { args: ['revoked'] } })
  await until(() => calls.length > 1, 'the other one has stopped')
  expect(calls).toEqual(['begun', 'stopped'])
})

it.concurrent('a call that runs is only stopped by a revoke that terminates it, as with Celery', async (context) => {
  const { wire, calls, revoke, start } = await open(context)
  await start()
  const id = await wire.send('hold')
  await until(() => calls.length === 1, 'it runs')
  await revoke(id)
  const later = await wire.send('note', ['x'], { etaMs: Date.now() + 3_600_000 })
  await revoke(later)
  expect(await wire.result(later)).toMatchObject({ state: 'REVOKED' })
  calls.push('go')
  expect(await wire.result(id)).toMatchObject({ state: 'SUCCESS' })
  expect(calls).toEqual(['begun', 'go', 'ended'])
})

it.concurrent('results of many megabytes that come at once all arrive, and each once', async (context) => {
  const { wire, start } = await open(context)
  const ids: string[] = []
  for (let i = 0; i < 120; i++) ids.push(await wire.send('large'))
  await start()
  for (const id of ids) await wire.result(id)
  expect(wire.replies).toHaveLength(ids.length)
})

it.concurrent('a chain that breaks fails to its end, so that nobody waits for its last task', async (context) => {
  const { wire, calls, start } = await open(context)
  await start()
  const [second, last] = [randomUUID(), randomUUID()]
  const options = (task_id: string) => ({ options: { task_id, reply_to: wire.replyTo } })
  const chain = [signature('note', [], options(second)), signature('note', [], options(last))]
  await wire.send('fail', [], { chain })
  const value = { type: 'RangeError', args: ['boom'] }
  expect(await wire.result(last)).toMatchObject({ state: 'FAILURE', value })
  expect(await wire.result(second)).toMatchObject({ state: 'FAILURE', value })
  expect(calls).toEqual([])
})

it.concurrent('a chain of which a task is revoked, or has expired, is revoked to its end', async (context) => {
  const { wire, calls, revoke, start } = await open(context)
  await start()
  const send = async (more: object) => {
    const last = randomUUID()
    const options = { task_id: last, reply_to: wire.replyTo }
    const id = await wire.send('note', ['x'], { ...more, chain: [signature('note', [], { options })] })
    return { id, last }
  }
  const etaMs = Date.now() + 3_600_000
  const later = await send({ etaMs })
  await revoke(later.id)
  const over = await send({ etaMs, expiresMs: etaMs - 1_000_000 })
  for (const [{ id, last }, why] of [
    [later, 'revoked'],
    [over, 'expired'],
  ] as const) {
    expect(await wire.result(id)).toMatchObject({ state: 'REVOKED', value: { args: [why] } })
    expect(await wire.result(last)).toMatchObject({ state: 'REVOKED', value: { args: [why] } })
  }
  expect(calls).toEqual([])
})

it.concurrent('a task that follows another one waits in a queue that no worker has made yet', async (context) => {
  const { wire, start } = await open(context)
  await start()
  const link = signature('elsewhere', ['x'], { options: { queue: 'new', countdown: 60, expires: 120 } })
  await wire.result(await wire.send('note', [], { callbacks: [link] }))
  const found: Record<string, unknown>[] = []
  await until(() => wire.broker.use((channel) => channel.checkQueue('new')).then(Boolean, () => false), 'it is there')
  await wire.read('new', ({ headers }) => found.push(headers))
  await until(() => found.length === 1, 'it is in its queue')
  const inS = (name: string) => (Date.parse(String(found[0]?.[name])) - Date.now()) / 1_000
  expect(inS('eta')).toBeGreaterThan(30)
  expect(inS('eta')).toBeLessThanOrEqual(60)
  expect(inS('expires')).toBeGreaterThan(90)
  expect(inS('expires')).toBeLessThanOrEqual(120)
})

it.concurrent('no delivery is used up while the store is away', async (context) => {
  const { wire, calls, start } = await open(context)
  // The server drops a message that went back to this queue more than twice.
  const arguments_ = { 'x-queue-type': 'quorum', 'x-delivery-limit': 2 }
  await wire.broker.declare({ queues: [{ name: 'limited', arguments: arguments_ }] })
  const { sluice } = await start()
  await sluice.work([task('note', { input: z.unknown(), run: (input) => void calls.push(input) })], {
    celery: ['limited'],
  })
  await sluice.db.query('alter table sluice.celery_call rename to away')
  for (let i = 0; i < 3; i++) await wire.sendTo('limited', 'note', [i])
  const sinceMs = Date.now()
  await until(() => Date.now() - sinceMs > 5_000, 'five seconds have passed')
  await sluice.db.query('alter table sluice.away rename to celery_call')
  await until(() => calls.length === 3, 'all have run')
})

it.concurrent('a result is not lost when Redis is silent in the moment in which it is sent', async (context) => {
  const redis = await startRedis()
  context.onTestFinished(() => redis.close())
  const { url } = await freshBroker()
  const wire = await openWire(url, context)
  const { all, calls } = tasks()
  await absorb(url, all, context, { celeryResults: redis.url })
  const link = signature('note', ['linked'], { immutable: true })
  const id = await wire.send('hold', [], { callbacks: [link] })
  await until(() => calls.length === 1, 'it runs')
  process.kill(redis.pid ?? 0, 'SIGSTOP')
  calls.push('go')
  await until(() => calls.includes('ended'), 'it has ended')
  const sinceMs = Date.now()
  await until(() => Date.now() - sinceMs > 8_000, 'its result could not be sent')
  // What it was sent is lost with it.
  await redis.kill()
  await redis.start()
  const results = await connectRedis(redis.port)
  context.onTestFinished(() => results.close())
  const result = async () => String(await results.send('GET', [`celery-task-meta-${id}`]))
  await until(async () => (await result()).includes('SUCCESS'), 'the result is there')
  await until(() => calls.some((call) => Array.isArray(call) && call[0] === 'linked'), 'what follows it has run')
})

it.concurrent('a call is revoked though the clock of the sender is behind', async (context) => {
  const { wire, revoke, start } = await open(context)
  await start()
  const id = await wire.send('note', [], { etaMs: Date.now() + 3_600_000 })
  // As of a sender that awaits answers: until a time that is over here, where it has come.
  await revoke(id, {}, Date.now() / 1_000 - 5)
  expect(await wire.result(id)).toMatchObject({ state: 'REVOKED' })
})

it.concurrent('the rest of a chain fails if its next task cannot be sent', async (context) => {
  const { wire, start } = await open(context)
  await start()
  const follows = (id: string, more: object = {}) =>
    signature('note', [], { options: { task_id: id, reply_to: wire.replyTo, ...more } })
  const nowhere = { exchange: 'nowhere', routing_key: 'note' }
  const id = await wire.send('note', [], { chain: [follows('next', nowhere), follows('last')] })
  expect(await wire.result(id)).toMatchObject({ state: 'SUCCESS' })
  expect(await wire.result('next')).toMatchObject({ state: 'FAILURE' })
  expect(await wire.result('last')).toMatchObject({ state: 'FAILURE' })
})

it.concurrent('a message with a time limit that was read where there are no rules meets those that there are, once', async (context) => {
  const { url, wire, all, calls } = await open(context)
  const late = task('late', { input: z.unknown(), maxWait: '1h', run: () => 'late' })
  const { url: store } = await freshDatabase()
  const plain = await Sluice.open({ store, celeryBroker: url })
  context.onTestFinished(() => plain.close())
  await plain.work([...all, late], { celery: ['celery'], queues: ['elsewhere'] })
  for (const name of ['hold', 'late', 'note']) await wire.send(name, [], { softLimitS: 0.5 })
  await until(async () => (await plain.list({})).length === 3, 'all are jobs')
  const sent = await plain.list({})
  const hold = rule('celery', { tasks: 'hold', do: { priority: 5 } })
  const banned = rule('banned', { tasks: 'note', do: { discard: 'no notes' } })
  const ruled = await Sluice.open({ store, rules: [hold, banned] })
  context.onTestFinished(() => ruled.close())
  const worker = await ruled.work([...all, late])
  await until(async () => (await ruled.list({ state: ['waiting', 'dispatched', 'running'] })).length === 0, 'all ended')
  await worker.stop()
  const jobs = await Promise.all(sent.map(({ id }) => ruled.jobs.get(id)))
  const of = (name: string) => jobs.find((job) => job?.task === name)
  const limit = { rule: 'time limit', timeoutMs: 500 }
  const held = { priority: 5, error: { code: 'SLUICE_TIMEOUT' }, ruled: [limit, { rule: 'celery', priority: 5 }] }
  expect(of('hold')).toMatchObject({ state: 'failed', ...held })
  expect(of('late')).toMatchObject({ state: 'done', ruled: [limit] })
  expect(of('note')).toMatchObject({ state: 'cancelled', reason: 'discarded by rule banned: no notes' })
  expect(calls).toEqual(['begun', 'stopped'])
})

it.concurrent('a failed job whose message limits its time, and which has met no rules, keeps the limit with another input', async (context) => {
  const { wire, all, calls, start } = await open(context)
  const { sluice, worker } = await start()
  await wire.send('hold', [], { softLimitS: 0.2 })
  await until(async () => (await sluice.list({ state: 'failed' })).length === 1, 'it failed')
  const [{ id } = { id: '' }] = await sluice.list({ state: 'failed' })
  expect(await sluice.jobs.get(id)).toMatchObject({ ruled: [{ rule: 'time limit', timeoutMs: 200 }] })
  await worker.stop()
  expect(await sluice.jobs.retryWith(id, [1])).toBe(true)
  await sluice.work(all)
  await until(async () => (await sluice.list({ state: 'failed' })).length === 1, 'it failed again')
  expect(await sluice.jobs.get(id)).toMatchObject({ attempts: [{}, { error: { code: 'SLUICE_TIMEOUT' } }] })
  expect(calls).toEqual(['begun', 'stopped', 'begun', 'stopped'])
})
