/** Idle workers sleep long: a round notifies them of work whose notification none of them got, and of nothing else. */
import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { sqlOn } from '../../src/db/store.ts'
import { newId } from '../../src/core/hash.ts'
import { parseHours } from '../../src/core/hours.ts'
import { defineGate } from '../../src/gates/gates.ts'
import { limit } from '../../src/limits/limit.ts'
import { label } from '../../src/limits/pool.ts'
import { until } from '../until.ts'
import {
  changeWorkers,
  claim,
  claimAll,
  done,
  emptied,
  enter,
  mainEngines,
  ownClock,
  quietTask,
} from '../claim/engine.ts'
import { createClasses } from '../claim/engine-parts.ts'
import { wakeForMissedWork } from './engine.ts'
import { forgetIdle } from '../store/engine.ts'

/** A Tuesday, 12:00 in Berlin. */
const startMs = Date.parse('2025-07-01T10:00:00Z')

describe.each(mainEngines)('on $name', (engine) => {
  const at = Object.assign(emptied(engine), { clock: {} as Awaited<ReturnType<typeof ownClock>> })
  beforeAll(async () => void (at.clock = await ownClock(at.db, startMs)))
  const [plain, slow] = [quietTask('plain'), quietTask('slow', [limit('slow', { rate: '60/h', burst: 1 })])]
  let [mine, other]: string[] = []

  const member = (task: string) => enter(at.db, [task])
  /** Lets a worker fall asleep, after a claim that finds nothing more. */
  const sleep = async (id = mine ?? '', task = 'plain') => claim(at.db, id, [task], 5, newId(), { idle: true })
  /** The workers that one search for missed work notifies. */
  const called = async () => {
    const told: string[] = []
    const stop = await at.db.listen('sluice.wake', (payload) => void told.push(payload))
    await until(() => at.db.listening(), 'it listens')
    // Notifications of senders come before.
    const notify = async (payload: string) => {
      await at.db.query(`select pg_notify('sluice.wake', $1)`, [payload])
      await until(() => told.includes(payload), 'all is heard')
    }
    await notify('begin')
    await wakeForMissedWork(at.db)
    await notify('end')
    await stop()
    return told.slice(told.indexOf('begin') + 1, -1)
  }

  beforeEach(async () => {
    await at.clock.set(startMs)
    ;[mine, other] = [await member('plain'), await member('slow')]
    // The task is known, and none of its jobs are left.
    for (const task of [plain, slow]) {
      await at.sluice.send(task, { tenant: 'a' })
      await createClasses(at.db)
    }
    for (const [id, task] of [
      [mine, 'plain'],
      [other, 'slow'],
    ] as const) {
      const { jobs } = await claim(at.db, id ?? '', [task], 5)
      await done(at.db, jobs)
    }
  })

  it('notifies two workers of a new job, also behind others that wait for a limit, and none once it is read', async () => {
    await at.sluice.send(slow, { tenant: 'a' })
    await sleep(other, 'slow')
    for (let i = 0; i < 10; i++) await sleep(await member('slow'), 'slow')
    await at.sluice.send(slow, { tenant: 'a' })
    expect(await called()).toHaveLength(2)
    await sleep(other, 'slow')
    expect(await called()).toEqual([])
  })

  it('no worker is notified while nothing is due, nor when none is idle', async () => {
    await sleep()
    expect(await called()).toEqual([])
    await forgetIdle(at.db)
    await at.sluice.send(plain, {})
    expect(await called()).toEqual([])
  })

  it.runIf(engine.name === 'PostgreSQL')(
    'workers idle at the commit of a transaction that saw none idle are notified, if they can run its jobs',
    async () => {
      await at.sluice.transaction(async (tx) => {
        await at.sluice.send(plain, {}, { tx })
        await sleep()
        await sleep(other, 'slow')
        expect(await called()).toEqual([])
      })
      expect(await called()).toEqual([`@${mine}`])
      // The worker comes, or does not exist any more; it is not notified again and again.
      expect(await called()).toEqual([])
    },
  )

  it('workers are notified when a gate opens whose jobs it held back', async () => {
    const hours = parseHours({ from: '13:00', to: '14:00', zone: 'Europe/Berlin' })
    await defineGate(sqlOn(at.db), 'lunch', { tasks: ['plain'], hours, reason: 'lunch' })
    await at.sluice.send(plain, {})
    await sleep()
    await sleep(other, 'slow')
    expect(await called()).toEqual([])
    await at.clock.set(startMs + 3_600_000)
    expect(await called()).toEqual([`@${mine}`])
  })

  it('workers are notified when that gate closed while the jobs waited for a limit, too', async () => {
    await at.sluice.sendMany(slow, [{}, {}])
    const hours = parseHours({ from: '13:00', to: '14:00', zone: 'Europe/Berlin' })
    await sleep(other, 'slow')
    await defineGate(sqlOn(at.db), 'lunch', { tasks: ['slow'], hours, reason: 'lunch' })
    await at.clock.set(startMs + 1_800_000)
    expect((await sleep(other, 'slow')).wakeUs).toBe(undefined)
    await sleep()
    expect(await called()).toEqual([])
    await at.clock.set(startMs + 3_600_000)
    expect(await called()).toEqual([`@${other}`])
  })

  it('workers are notified in time of a scheduled job that no sleeping worker knows of', async () => {
    await sleep()
    await at.sluice.send(plain, {}, { delay: '10s' })
    expect(await called()).toEqual([])
    await at.clock.set(startMs + 7_000)
    expect(await called()).toEqual(['*'])
    expect((await sleep()).wakeUs).toBeLessThan(3_100_000)
    expect(await called()).toEqual([])
    // The worker slept too long.
    await at.clock.set(startMs + 11_000)
    expect(await called()).toEqual(['*'])
  })

  it('another worker is notified of room when the worker that would have woken for it is gone', async () => {
    const third = await member('slow')
    await at.sluice.sendMany(slow, [{}, {}, {}])
    const first = await sleep(other, 'slow')
    const second = await sleep(third, 'slow')
    expect(second.wakeUs).toBeGreaterThan((first.wakeUs ?? 0) + 30_000_000)
    await sleep()
    await at.clock.set(startMs + (first.wakeUs ?? 0) / 1_000 - 2_000)
    expect(await called()).toEqual([])
    await forgetIdle(at.db, other)
    expect(await called()).toEqual([`@${third}`])
  })
  it('another worker is notified of room at its label when the worker that would have woken for it is busy', async () => {
    const hosted = quietTask('hosted', [limit('ip', { rate: '60/h', burst: 1, by: label('host') })])
    const tasks = ['hosted', 'plain']
    const ids = [await member('plain'), await member('plain')]
    await changeWorkers(at.db, { tasks, labels: { host: 'a' } }, ids)
    const look = async (id = '') => claim(at.db, id, tasks, 1, newId(), { idle: true })
    await at.sluice.sendMany(hosted, [{}, {}])
    expect((await claimAll(at.db, ids[0] ?? '', tasks, 1)).length).toBe(1)
    const [first, second] = [await look(ids[0]), await look(ids[1])]
    expect([first.wakeUs, second.wakeUs]).toEqual([60_000_000, 120_005_001])
    await at.sluice.send(plain, {})
    expect((await look(ids[0])).jobs).toHaveLength(1)
    await at.clock.set(startMs + 59_000)
    expect(await called()).toEqual([])
    await at.clock.set(startMs + 61_000)
    expect(await called()).toEqual([`@${ids[1]}`])
    expect((await look(ids[1])).jobs).toHaveLength(1)
  })
})
