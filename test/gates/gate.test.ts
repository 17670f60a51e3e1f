/** Pauses and hours: what they hold back, what goes on, and what claims find when they end. */
import { sqlOn } from '../../src/db/store.ts'
import { parseHours } from '../../src/core/hours.ts'
import { beforeAll, describe, expect, it } from 'vitest'
import { defineGate, removeGate } from '../../src/gates/gates.ts'
import { limit } from '../../src/limits/limit.ts'
import type { Task } from '../../src/tasks/task.ts'
import { copies } from '../rows.ts'
import { until } from '../until.ts'
import {
  claim,
  claimAll,
  count,
  done,
  emptied,
  type Engine,
  mainEngines,
  openOn,
  ownClock,
  perTenant,
  quietTask,
} from '../claim/engine.ts'
import { further } from '../takes/engine.ts'
import { hold } from '../limits/engine.ts'
import { wakeForMissedWork } from '../fleet/engine.ts'
import { idleWorkers, registerIdle } from '../store/engine.ts'

/** A Tuesday, 12:00 in Berlin. */
const startMs = Date.parse('2025-07-01T10:00:00Z')

/** An empty store for each test, with a clock that the test controls. */
function store(engine: Engine) {
  const at = Object.assign(emptied(engine), { clock: {} as Awaited<ReturnType<typeof ownClock>> })
  beforeAll(async () => void (at.clock = await ownClock(at.db, startMs)))
  const take = (tasks: string[], want = 10) => claimAll(at.db, at.worker, tasks, want)
  const send = <Input>(task: Task<Input>, n: number, tenant = 'a', queue = 'default') =>
    at.sluice.sendMany(task, copies(n, { tenant }) as never, { queue })
  return Object.assign(at, { take, send })
}

const tenants = (jobs: readonly { input: unknown }[]) => jobs.map(({ input }) => (input as { tenant: string }).tenant)
const reason = 'the vendor is down'

describe.each(mainEngines)('a pause on $name', (engine) => {
  const at = store(engine)
  const [one, two] = [quietTask('sync-one'), quietTask('sync-two')]

  it('of a queue holds back its jobs alone, lets running ones end, and is shown as the reason', async () => {
    const { sluice, db } = at
    await at.clock.set(startMs)
    await at.send(one, 2, 'slow', 'bulk')
    const running = await at.take(['sync-one'], 1)
    await sluice.pause({ queue: 'bulk' }, { reason })
    await at.send(one, 2, 'fast', 'default')
    expect(tenants(await at.take(['sync-one']))).toEqual(['fast', 'fast'])
    expect(await done(db, running)).toEqual([])
    // Nothing to do, and no reason to claim again at once.
    expect(await claim(db, at.worker, ['sync-one'], 5)).toMatchObject({ jobs: [], again: false, wakeUs: undefined })
    const [job] = await sluice.list({ state: 'waiting' })
    const why = await sluice.why(job?.id ?? '')
    expect(why?.reasons[0]).toMatchObject({
      kind: 'paused',
      gate: 'pause:queue:bulk',
      since: new Date(startMs),
      by: expect.stringMatching(/^.+@.+$/),
      text: expect.stringMatching(/^queue bulk is paused since 2025-07-01T10:00:00.000Z by .*: the vendor is down$/),
    })
    expect(why?.notBefore).toBeUndefined()
    expect(await sluice.resume({ queue: 'bulk' })).toBe(true)
    expect(await sluice.resume({ queue: 'bulk' })).toBe(false)
    expect(tenants(await at.take(['sync-one']))).toEqual(['slow'])
  })

  it('of tasks by a pattern holds back matching tasks, and a second pause of the same pattern only changes the reason', async () => {
    const { sluice } = at
    const other = quietTask('sync_other')
    for (const task of [one, two, other]) await at.send(task, 1, task.name)
    const all = ['sync-one', 'sync-two', 'sync_other']
    await sluice.pause({ task: 'sync-*' }, { reason: 'first' })
    await at.clock.set(startMs + 60_000)
    await sluice.pause({ task: 'sync-*' }, { reason: 'second' })
    expect(tenants(await at.take(all))).toEqual(['sync_other'])
    expect(await sluice.pauses()).toMatchObject([
      { what: { task: 'sync-*' }, reason: 'second', since: new Date(startMs), isClosed: true, until: undefined },
    ])
    expect(await sluice.resume({ task: 'sync-one' })).toBe(false)
    expect(await sluice.resume({ task: 'sync-*' })).toBe(true)
    expect(tenants(await at.take(all)).toSorted()).toEqual(['sync-one', 'sync-two'])
    expect(await sluice.pauses()).toEqual([])
  })

  it('does not hide jobs that became due meanwhile from a worker that has looked before', async () => {
    const { sluice, db } = at
    await at.clock.set(startMs)
    const slow = quietTask('slow', [perTenant('slow', '1/s', 1)])
    await at.send(slow, 3)
    await at.take(['slow'], 1)
    expect(await at.take(['slow'], 1)).toEqual([])
    await sluice.pause({ task: 'slow' }, { reason })
    await at.clock.set(startMs + 30_000)
    const idle = await claim(db, at.worker, ['slow'], 1)
    expect(idle).toMatchObject({ jobs: [], wakeUs: undefined })
    await sluice.resume({ task: 'slow' })
    const after = await claim(db, at.worker, ['slow'], 1, undefined, { since: idle.since })
    expect(after.jobs).toHaveLength(1)
  })

  it('gives no credit: a tenant that was paused beside others goes on at their turn', async () => {
    const { sluice } = at
    await at.clock.set(startMs)
    const shared = limit('both', { rate: '100/s', burst: 10 })
    const tasks = [quietTask('day', [shared]), quietTask('night', [shared]), quietTask('more', [shared])]
    for (const task of tasks) await at.send(task, 700, task.name)
    const all = tasks.map(({ name }) => name)
    const rounds = async (from: number, n: number) => {
      const served: string[] = []
      for (let i = from; i < from + n; i++) {
        await at.clock.set(startMs + i * 1_000)
        served.push(...tenants(await at.take(all, 10)))
      }
      return served
    }
    await rounds(0, 1)
    await sluice.pause({ task: 'day' }, { reason })
    expect(await rounds(1, 40)).not.toContain('day')
    await sluice.resume({ task: 'day' })
    const after = await rounds(41, 12)
    expect(after).toHaveLength(120)
    expect(after.filter((name) => name === 'day').length).toBeLessThan(100)
  })
})

describe.each(mainEngines)('a gate on $name', (engine) => {
  const at = store(engine)

  it('of a rule is deleted a day after the last worker had the rule', async () => {
    const { db, sluice } = at
    await at.clock.set(startMs)
    await defineGate(sqlOn(db), 'rule:old#1', { tasks: ['sync-*'], reason: 'rule old' }, 60)
    await sluice.pause({ task: 'other*' }, { reason })
    await registerIdle(db, at.worker)
    const names = async (ms: number) => {
      await at.clock.set(startMs + ms)
      await wakeForMissedWork(db)
      return (await db.query<{ name: string }>('select name from sluice.gate order by 1')).map(({ name }) => name)
    }
    expect(await names(86_459_000)).toEqual(['pause:task:other*', 'rule:old#1'])
    expect(await names(86_461_000)).toEqual(['pause:task:other*'])
  })
})

describe.each(mainEngines)('a pause of a limit on $name', (engine) => {
  const at = store(engine)
  const crm = perTenant('crm', '100/s', 100)
  const calls = quietTask('calls', [crm])

  it('of one key holds back that key, while other keys and requests of running jobs go on', async () => {
    const { sluice, db } = at
    await at.clock.set(startMs)
    await at.send(calls, 3, 'a')
    const [running] = await at.take(['calls'], 1)
    await sluice.pause({ limit: 'crm', key: 'a' }, { reason })
    await at.send(calls, 2, 'b')
    expect(tenants(await at.take(['calls']))).toEqual(['b', 'b'])
    expect(await further(db, running, ['crm:a'])).toEqual({ granted: true, lost: false })
    // Its lane waits in the bucket's list, at which no claim looks.
    await at.clock.set(startMs + 3_600_000)
    expect(await count(db, 'sluice.list where due < 9007199254740991')).toBe(0)
    expect(await claim(db, at.worker, ['calls'], 5)).toMatchObject({ jobs: [], again: false })
    const [job] = await sluice.list({ state: 'waiting' })
    expect((await sluice.why(job?.id ?? ''))?.reasons[0]).toMatchObject({
      kind: 'paused',
      limit: 'crm',
      key: 'a',
      text: expect.stringMatching(/^crm \(100\/s for a\) is paused since .*: the vendor is down$/),
    })
    expect(await sluice.resume({ limit: 'crm' })).toBe(false)
    expect(await sluice.resume({ limit: 'crm', key: 'a' })).toBe(true)
    expect(tenants(await at.take(['calls']))).toEqual(['a', 'a'])
  })

  it("of all keys holds back later keys too, and a vendor's longer Retry-After remains", async () => {
    const { sluice, db } = at
    await at.clock.set(startMs)
    await at.send(calls, 1, 'a')
    await done(db, await at.take(['calls'], 1))
    await hold(db, ['crm:a'], 60_000_000)
    await sluice.pause({ limit: 'crm' }, { reason })
    for (const tenant of ['a', 'b', 'new']) await at.send(calls, 1, tenant)
    expect(await at.take(['calls'])).toEqual([])
    const [held] = (await sluice.list({ state: 'waiting' })).slice(-1)
    expect((await sluice.why(held?.id ?? ''))?.reasons.map(({ kind }) => kind)).toEqual(
      expect.arrayContaining(['paused', 'held']),
    )
    expect(await sluice.pauses()).toMatchObject([{ what: { limit: 'crm' }, reason, isClosed: true }])
    await sluice.resume({ limit: 'crm' })
    expect(tenants(await at.take(['calls'])).toSorted()).toEqual(['b', 'new'])
    await at.clock.set(startMs + 60_000)
    expect(tenants(await at.take(['calls']))).toEqual(['a'])
  })

  it('frees places while it lasts', async () => {
    const { sluice, db } = at
    await at.clock.set(startMs)
    const one = quietTask('one', [limit('place', { concurrency: 1 })])
    await at.send(one, 2)
    const running = await at.take(['one'])
    expect(running).toHaveLength(1)
    await sluice.pause({ limit: 'place' }, { reason })
    await done(db, running)
    expect(await at.take(['one'])).toEqual([])
    await sluice.resume({ limit: 'place' })
    expect(await at.take(['one'])).toHaveLength(1)
  })

  it.each([
    [{ limit: 'crn' }, 'SLUICE_NO_SUCH_LIMIT'],
    [{ queue: 'defualt' }, 'SLUICE_NO_SUCH_QUEUE'],
    [{ task: 'cals' }, 'SLUICE_NO_SUCH_TASK'],
    [{ queue: 'a', task: 'b' }, 'SLUICE_BAD_PAUSE'],
    [{ queue: 'a', key: 'b' }, 'SLUICE_BAD_PAUSE'],
    [{}, 'SLUICE_BAD_PAUSE'],
    [{ limit: 'crm', key: '' }, 'SLUICE_BAD_PAUSE'],
    [{ queue: 'no spaces' }, 'SLUICE_BAD_PAUSE'],
  ])('refuses %j', async (what, code) => {
    await expect(at.sluice.pause(what as never, { reason })).rejects.toMatchObject({ code })
    await expect(at.sluice.pause({ queue: 'a' }, { reason: ' ' })).rejects.toMatchObject({ code: 'SLUICE_BAD_PAUSE' })
    expect(await at.sluice.pauses()).toEqual([])
  })

  it('refuses a key that the limit cannot have, which would hold nothing', async () => {
    const { sluice } = at
    const pool = limit('accounts', { rate: '5/s', pool: ['a1', 'a2'] })
    const whole = limit('whole', { rate: '5/s' })
    await sluice.define([quietTask('pooled', [pool]), quietTask('plain', [whole])])
    const pausing = (name: string) => sluice.pause({ limit: name, key: 'a3' }, { reason })
    await expect(pausing('accounts')).rejects.toMatchObject({
      message: expect.stringMatching(/no.*members are a1, a2/),
    })
    await expect(pausing('whole')).rejects.toMatchObject({ message: expect.stringContaining('has no keys') })
    await sluice.pause({ limit: 'accounts', key: 'a2' }, { reason })
    expect(await sluice.resume({ limit: 'accounts', key: 'a2' })).toBe(true)
  })
})

describe.each(mainEngines)('a gate with hours on $name', (engine) => {
  const at = store(engine)
  const calls = quietTask('call-home')
  const hours = { from: '08:00', to: '18:00', days: 'Mon-Fri', zone: 'Europe/Berlin' }

  it('holds jobs back outside its hours, by the wall clock of its zone, and shows until when', async () => {
    const { sluice, db } = at
    await at.clock.set(startMs)
    await defineGate(sqlOn(db), 'office-hours', { tasks: ['call-*'], hours: parseHours(hours), reason: 'people sleep' })
    await at.send(calls, 1, 'by day')
    expect(tenants(await at.take(['call-home']))).toEqual(['by day'])
    await at.clock.set(startMs + 6 * 3_600_000)
    await at.send(calls, 1, 'in the evening')
    expect(await at.take(['call-home'])).toEqual([])
    const [job] = await sluice.list({ state: 'waiting' })
    const until = new Date('2025-07-02T06:00:00Z')
    expect((await sluice.why(job?.id ?? ''))?.reasons).toContainEqual({
      kind: 'closed',
      gate: 'office-hours',
      since: new Date(startMs),
      by: expect.any(String),
      notBefore: until,
      text: 'closed by office-hours (08:00-18:00 Mon-Fri Europe/Berlin): people sleep',
      acts: 'time',
    })
    expect(await sluice.pauses()).toMatchObject([
      { what: undefined, gate: { name: 'office-hours', queues: null, tasks: ['call-*'] }, isClosed: true, until },
    ])
    expect((await sluice.pauses())[0]?.gate?.hours).toEqual(hours)
    await at.clock.set(until.getTime())
    expect(tenants(await at.take(['call-home']))).toEqual(['in the evening'])
    expect(await removeGate(sqlOn(db), 'office-hours')).toBe(true)
    expect(await removeGate(sqlOn(db), 'office-hours')).toBe(false)
  })

  it.each([
    { hours: { ...hours, zone: 'Europe/Berlim' } },
    { hours: { ...hours, zone: undefined as never } },
    { hours: { ...hours, from: '8:00' } },
    { hours: { ...hours, to: '24:01' } },
    { hours: { ...hours, to: '08:00' } },
    { hours: { ...hours, days: 'Mo-Fr' } },
    { queues: [] },
  ])('refuses %j', async (bad) => {
    const { hours: given, ...rest } = bad as { hours?: typeof hours }
    const defined = async () =>
      defineGate(sqlOn(at.db), 'bad', { ...rest, ...(given && { hours: parseHours(given) }), reason })
    await expect(defined()).rejects.toMatchObject({
      code: given === undefined ? 'SLUICE_BAD_GATE' : 'SLUICE_BAD_HOURS',
    })
  })
})

it.each(mainEngines)('an idle worker on $name goes on when a pause ends', async (engine) => {
  const sluice = await openOn(engine)
  const ended: string[] = []
  const quiet = quietTask('quiet')
  const work = { ...quiet, run: (input: unknown) => void ended.push((input as { tenant: string }).tenant) }
  await sluice.pause({ task: 'quiet*' }, { reason })
  const worker = await sluice.work([work as never])
  await sluice.send(quiet, { tenant: 'a' })
  await until(async () => (await idleWorkers(sluice.db)).length > 0)
  expect(ended).toEqual([])
  await sluice.resume({ task: 'quiet*' })
  await until(() => ended.length === 1)
  await worker.stop()
  await sluice.close()
})
