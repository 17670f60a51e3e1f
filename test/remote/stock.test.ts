/** Jobs that stock Celery workers execute: RabbitMQ and Celery as they are. */
import { existsSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { openProducer } from '../../src/celery/index.ts'
import { fleet } from '../../src/cli/fleet.ts'
import { stock } from '../../src/cli/stock.ts'
import { logTo, silent } from '../../src/core/log.ts'
import { sqlOn } from '../../src/db/store.ts'
import { label, limit } from '../../src/index.ts'
import { copies } from '../rows.ts'
import { until } from '../until.ts'
import { another, dispatch, openStage, pythonTask, type Stage } from './stage.ts'

let stage: Stage
beforeAll(async () => void (stage = await openStage()))
afterAll(() => stage?.close())

describe.concurrent('a job of a remote task', () => {
  it('runs on a stock worker, which knows its job, and its result is in its record', async (context) => {
    const add = pythonTask('add', await stage.queue())
    const lines: string[] = []
    const log = logTo((_, text) => lines.push(text))
    const { sluice, ended, dispatcher } = await dispatch(stage, [add], context, { log })
    const id = await sluice.send(add, { x: 2, y: 3 })
    expect(await ended(id)).toMatchObject({ state: 'done', result: 5 })
    expect(stage.seen(id)).toMatchObject([{ root: id, attempt: 1, ambiguous: false, retries: 0 }])
    await dispatcher.stop()
    const said = lines.map((line) =>
      /has published (\d+) messages, received (\d+) and settled (\d+): .* for each of \d+ jobs/.exec(line),
    )
    const [published, received, settled] =
      said
        .find((found) => found !== null)
        ?.slice(1)
        .map(Number) ?? []
    // Its message; that it began, and its result. The rest are requests to workers, their answers, and their events.
    expect(published).toBeGreaterThanOrEqual(1)
    expect(received).toBeGreaterThanOrEqual(2)
    // That it began is recorded with other begins, and settled then: at a stop it may come later.
    expect(settled).toBeGreaterThanOrEqual(1)
  })

  it('fails with the type and traceback of Python, and is retried as its task defines', async (context) => {
    const fail = pythonTask('fail', await stage.queue(), { retry: { attempts: 2, base: 1, max: 1 } })
    const { sluice, ended } = await dispatch(stage, [fail], context)
    const id = await sluice.send(fail, {})
    const job = await ended(id)
    expect(job).toMatchObject({ state: 'failed', reason: 'exhausted' })
    expect(job.error).toMatchObject({ name: 'LookupError', message: 'no such row, 7', code: 'SLUICE_CELERY_FAILED' })
    expect(job.error?.stack).toContain("raise LookupError('no such row', 7)")
    expect(job.attempts[0]).toMatchObject({ outcome: 'retried', worker: 'stock@host', version: 'celery 5.2.6' })
    expect(stage.seen(id).map(({ attempt }) => attempt)).toEqual([1, 2])
  })

  it('goes back uncalled when its worker reads it too late, and counts no attempt', async (context) => {
    const name = another('slow')
    const slow = await stage.start(name, ['-c', '2', '-Q', name])
    const add = pythonTask('add', name)
    const { sluice, ended, count, nowUs } = await dispatch(stage, [add], context)
    await ended(await sluice.send(add, { x: 0, y: 0 }))
    // Its main process stands still, and lives.
    slow.signal('SIGSTOP')
    const id = await sluice.send(add, { x: 1, y: 1 })
    await until(async () => (await count(`job where claim is not null`)) === 1, 'it is claimed')
    const sinceUs = await nowUs()
    await until(async () => (await nowUs()) > sinceUs + 5_000_000, 'its grant is old')
    slow.signal('SIGCONT')
    expect(await ended(id)).toMatchObject({ state: 'done', attempt: 1, failed: 0, crashes: 0 })
    expect(stage.seen(id).length).toBe(1)
  })

  it('goes back uncalled when it is dropped from its queue, because others have filled the workers', async (context) => {
    const full = another('full')
    await stage.start(full, ['-c', '1', '-Q', full])
    const [add, many] = [pythonTask('add', full, { slots: 1 }), pythonTask('many', full)]
    const { sluice, ended, gate, open } = await dispatch(stage, [add], context)
    const producer = await openProducer({ broker: stage.url, queue: full })
    const other = await producer.delay(many.name, [], {
      kwargs: { gate },
      headers: { sluice_job: gate, sluice_attempt: 1 },
    })
    await until(() => stage.seen(gate).length === 1, 'the worker is full')
    const shown = async () =>
      (await fleet({ sql: sqlOn(sluice.db, 'sluice'), schema: 'sluice', isEmbedded: false }, stage.url))?.text
    const held = `"${full}" (1 unacknowledged at workers)`
    await until(async () => (await shown())?.includes(held) === true, 'status shows what it holds')
    const id = await sluice.send(add, { x: 1, y: 1 })
    const claimedMs = async () => (await sluice.jobs.get(id))?.dispatchedAt?.getTime()
    await until(async () => (await claimedMs()) !== undefined, 'it is claimed')
    const firstMs = await claimedMs()
    // It waits for an instant only: the dispatcher counts the slot as free.
    await until(async () => (await claimedMs()) !== firstMs, 'it is back, and claimed again')
    open()
    await other.result()
    await producer.close()
    expect(await ended(id)).toMatchObject({ state: 'done', attempt: 1, failed: 0, crashes: 0 })
    expect(stage.seen(id).length).toBe(1)
  })

  it.for([false, true])('takes a new grant when its task sends itself again (%s)', async (forgets, context) => {
    const again = pythonTask('again', await stage.queue())
    const { sluice, ended } = await dispatch(stage, [again], context)
    const id = await sluice.send(again, { countdown: 1, forgets })
    expect(await ended(id)).toMatchObject({ state: 'done', attempt: 2, failed: 1 })
    expect(stage.seen(id)).toMatchObject([
      { attempt: 1, retries: 0 },
      { attempt: 2, retries: 0 },
    ])
  })

  it.for([
    ['Celery, which cannot send it again', { forgets: false }, {}, { error: 'NoResult', retries: 0 }],
    ['Celery, which sends it again', { forgets: true }, {}, { error: 'LookupError', retries: 1 }],
    ['nobody, by max_retries = 0', { forgets: true }, { SWITCHED: 'yes' }, { error: 'LookupError', retries: 0 }],
  ] as const)('takes a new grant when autoretry_for has it repeated by %s', async ([, input, env, seen], context) => {
    const name = another('auto')
    await stage.start(name, ['-c', '2', '-Q', name], env)
    const auto = pythonTask('auto', name)
    const { sluice, ended } = await dispatch(stage, [auto], context)
    const id = await sluice.send(auto, input)
    const job = await ended(id)
    expect(job).toMatchObject({ state: 'done', attempt: 2, failed: 1, ambiguous: false, result: 0 })
    expect(job.attempts[0]?.error?.name).toBe(seen.error)
    expect(stage.seen(id)).toMatchObject([
      { attempt: 1, retries: 0 },
      { attempt: 2, retries: 0 },
    ])
    expect(stage.seen(`retry of ${id}`).length).toBe(seen.retries)
  })

  it.for([
    { declares: 8, has: 2 },
    { declares: 1, has: 2 },
  ])(
    'is claimed for $has slots of a worker if $declares are declared, but never for more than either',
    async ({ declares, has }, context) => {
      const name = another('sized')
      await stage.start(name, ['-c', String(has), '-Q', name])
      const many = pythonTask('many', name, { slots: declares })
      const { sluice, dispatcher, gate, open, count } = await dispatch(stage, [many], context)
      const least = Math.min(declares, has)
      await until(() => dispatcher.slots > 0, 'the worker is known')
      const ids = await sluice.sendMany(many, copies(5, { gate }))
      let most = 0
      const look = async () => {
        most = Math.max(most, await count('job where claim is not null'))
        return stage.seen(...ids).length === least
      }
      expect(dispatcher.slots).toBe(least)
      await until(look, `${least} have begun`)
      expect(most).toBe(least)
      expect(await sluice.jobs.status()).toMatchObject({ waiting: 5 - least })
      const doctor = await stock({ sql: sqlOn(sluice.db, 'sluice'), schema: 'sluice', isEmbedded: false }, stage.url)
      expect(doctor).toMatchObject({ status: 'warn' })
      expect(doctor?.text).toContain(`with 2 slots, but its tasks declare ${declares}: the smaller number counts`)
      open()
      await until(async () => (await count('done')) === 5, 'all are done')
      expect(stage.seen(...ids).length).toBe(5)
    },
  )

  it('takes a limit by label before its worker is known, by the label of the dispatcher', async (context) => {
    const byIp = limit('by-ip', { window: '2/h', by: label('ip') })
    const add = pythonTask('add', await stage.queue(), { limits: [byIp] })
    const { sluice, count } = await dispatch(stage, [add], context, { labels: { ip: '192.0.2.1' } })
    await sluice.sendMany(add, copies(3, { x: 1, y: 1 }))
    await until(async () => (await count('done')) === 2, 'those are done for which there is room')
    const waits = async () => (await sluice.list({ state: 'waiting' })).map(({ id }) => id)
    await until(async () => (await waits()).length === 1, 'the other one waits')
    const [id = ''] = await waits()
    expect((await sluice.why(id))?.reasons).toMatchObject([{ kind: 'limit', limit: 'by-ip', key: '192.0.2.1' }])
    expect((await sluice.verify()).exceeded).toEqual([])
  })

  it('is stopped when it is cancelled', async (context) => {
    const many = pythonTask('many', await stage.queue(), { slots: 1 })
    const { sluice, ended, begun, gate } = await dispatch(stage, [many], context)
    const id = await sluice.send(many, { gate })
    await begun(id)
    await sluice.jobs.cancel(id)
    // It has the only slot.
    const next = await sluice.send(many, {})
    expect(await ended(next)).toMatchObject({ state: 'done' })
    await until(() => !existsSync(`/proc/${stage.seen(id)[0]?.pid}`), 'its process has ended')
  })

  it.for(['late', 'early'])(
    'runs again, marked as in doubt, when its worker is killed (acknowledged %s)',
    async (acks, context) => {
      const queue = another('frail')
      const frail = await stage.start(queue, ['-c', '2', '-Q', queue], { ACKS: acks })
      const many = pythonTask('many', queue)
      const { sluice, ended, begun, gate } = await dispatch(stage, [many], context)
      const id = await sluice.send(many, { gate, held: 1 })
      await begun(id)
      await frail.kill()
      await stage.start(another('frail'), ['-c', '2', '-Q', queue])
      expect(await ended(id)).toMatchObject({ state: 'done', attempt: 2, crashes: 1, ambiguous: true })
      expect(stage.seen(id)).toMatchObject([{ attempt: 1 }, { attempt: 2, ambiguous: true }])
    },
  )

  it('has two workers with one name, and the log and doctor name them', async (context) => {
    const name = another('twin')
    for (const flags of [1, 2].map(() => ['-c', '2', '-Q', name])) await stage.start(name, flags)
    const told: string[] = []
    const quiet = () => {}
    const log = { debug: quiet, info: quiet, error: quiet, warn: (text: string) => void told.push(text) }
    const { sluice } = await dispatch(stage, [pythonTask('add', name)], context, { log })
    await until(() => told.some((text) => text.includes('has the name of another one')), 'the log names them')
    const doctor = () => stock({ sql: sqlOn(sluice.db, 'sluice'), schema: 'sluice', isEmbedded: false }, stage.url)
    const said = `several Celery workers have the name ${name}@host`
    await until(async () => (await doctor())?.text.includes(said) === true, 'doctor names them')
  })

  it.for([
    ['task_ignore_result = False', { IGNORES: 'yes' }],
    ["result_backend = 'rpc://'", { BACKEND: '' }],
  ] as const)(
    'is not sent to a worker that would not report it, and the log names %s',
    async ([setting, env], context) => {
      const name = another('mute')
      const mute = await stage.start(name, ['-c', '2', '-Q', name], env)
      const told: string[] = []
      const log = { ...silent, error: (text: string) => void told.push(text) }
      const add = pythonTask('add', name)
      const { sluice, ended } = await dispatch(stage, [add], context, { log })
      const id = await sluice.send(add, { x: 2, y: 3 })
      await until(() => told.some((text) => text.endsWith(`set ${setting}`)), 'the log names the setting')
      await mute.kill()
      await stage.start(another('mute'), ['-c', '2', '-Q', name])
      expect(await ended(id)).toMatchObject({ state: 'done', attempt: 1, ambiguous: false, result: 5 })
      expect(stage.seen(id).length).toBe(1)
    },
  )

  it('runs again, marked as in doubt, if what its worker reports cannot be read', async (context) => {
    const name = another('pickles')
    await stage.start(name, ['-c', '2', '-Q', name], { RESULTS: 'pickle' })
    const add = pythonTask('add', name)
    const { sluice, ended } = await dispatch(stage, [add], context)
    const id = await sluice.send(add, { x: 2, y: 3 })
    expect(await ended(id)).toMatchObject({ state: 'failed', ambiguous: true })
    const attempts = stage.seen(id).map(({ attempt }) => attempt)
    // On a busy machine a message expires, and the report of that cannot be read either.
    const [first = 1] = attempts
    expect(attempts).toEqual(attempts.map((_, n) => first + n))
  })

  it('holds its limit when the vendor refuses a call of Python, as in Node', async (context) => {
    const crm = limit('crm', { rate: '1000/min' })
    const refused = pythonTask('refused', await stage.queue(), { limits: [crm] })
    const { sluice, ended } = await dispatch(stage, [refused], context)
    const id = await sluice.send(refused, { status: 429, headers: { 'Retry-After': '3' } })
    const held = () => sluice.db.query('select 1 from sluice.refusal')
    await until(async () => (await sluice.jobs.get(id))?.throttled === 1, 'the vendor has refused it')
    expect((await held()).length).toBe(1)
    const job = await ended(id)
    expect(job).toMatchObject({ state: 'done', attempt: 2, throttled: 1, failed: 0, ambiguous: false })
    const [first, second] = job.attempts
    expect(first).toMatchObject({ outcome: 'throttled', error: { name: 'VendorAnswer', status: 429 } })
    expect(Number(second?.startedAt) - Number(first?.endedAt)).toBeGreaterThanOrEqual(2_900)
    // The vendor accepts again.
    await until(async () => (await held()).length === 0, 'nothing is refused any more')
  })
})
