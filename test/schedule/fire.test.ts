/** Schedules in the store, with a clock that the test controls: each instant once, whatever happens around it. */
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { storeOn } from '../../src/db/store.ts'
import { Rulebook } from '../../src/tasks/rule.ts'
import { type Clock, systemClock } from '../../src/core/clock.ts'
import { StoreError } from '../../src/core/errors.ts'
import { watch } from '../../src/core/test-points.ts'
import type { Db } from '../../src/db/db.ts'
import { type Schedule, scheduledFor } from '../../src/schedule/schedule.ts'
import { ScheduleRunner } from '../../src/schedule/schedule-runner.ts'
import type { Sluice } from '../../src/sluice.ts'
import { emptied, mainEngines, ownClock } from '../claim/engine.ts'
import { until } from '../until.ts'
import { minutely } from './stage.ts'
import { scheduleCalls } from './engine.ts'

const minuteMs = 60_000
const hourMs = 60 * minuteMs
const startMs = Date.parse('2026-06-01T12:00:30Z')

describe.each(mainEngines)('on $name', (engine) => {
  const store = emptied(engine)
  let sluice: Sluice
  let db: Db
  let clock: { set(ms: number): Promise<void> }
  let told: string[]

  beforeEach(async () => {
    ;({ sluice, db } = store)
    await db.query('with gone as (delete from sluice.schedule) delete from sluice.firing')
    clock ??= await ownClock(db, startMs)
    await clock.set(startMs)
    told = []
  })

  const silent = { debug() {}, info() {}, warn() {} }
  const log = { ...silent, error: (message: string) => void told.push(message) }
  /** The timetable of one process, with its definitions stored. */
  async function process(schedules: Schedule[], own: { clock?: Clock; db?: Db } = {}): Promise<ScheduleRunner> {
    const store = storeOn(own.db ?? db, { clock: own.clock ?? systemClock, log })
    const made = new ScheduleRunner({ store, schedules, rulebook: new Rulebook() })
    await made.define()
    return made
  }
  /** The instants for which there are jobs, in the order in which they were sent, in minutes since the start. */
  async function sent(): Promise<number[]> {
    const rows = await db.query<{ tags: string[] }>('select tags from sluice.job order by seq')
    return rows.map((row) => ((scheduledFor(row)?.getTime() ?? NaN) - startMs + 30_000) / minuteMs)
  }
  /** Records of instants, oldest first, as `outcome from-until`, in minutes. */
  async function records(name = 'minutely'): Promise<string[]> {
    const minute = (at: Date) => (at.getTime() - startMs + 30_000) / minuteMs
    const all = await sluice.schedules.history(name, { max: 1_000 })
    return all.reverse().map(({ at, until, outcome }) => `${outcome} ${minute(at)}-${minute(until)}`)
  }
  const at = (minutes: number) => clock.set(startMs - 30_000 + minutes * minuteMs)

  test('an instant that has come is sent once, with its limits, its tags and its input', async () => {
    const mine = await process([
      minutely({ tags: ['mine'], priority: 3, queue: 'slow', input: (when) => ({ account: when.toISOString() }) }),
    ])
    expect(await mine.fire()).toBe(10_000)
    await clock.set(startMs + 29_999)
    expect(await mine.fire()).toBe(1)
    expect(await sent()).toEqual([])
    await at(1)
    await mine.fire()
    await mine.fire()
    expect(await db.query('select task, queue, priority, buckets, tags, input from sluice.job')).toEqual([
      {
        task: 'sync',
        queue: 'slow',
        priority: 3,
        buckets: ['crm:2026-06-01T12:01:00.000Z'],
        tags: ['mine', 'schedule:minutely', 'scheduled-for:2026-06-01T12:01:00.000Z'],
        input: { account: '2026-06-01T12:01:00.000Z' },
      },
    ])
    await at(2)
    await mine.fire()
    expect(await sent()).toEqual([1, 2])
    expect(await records()).toEqual(['sent 1-1', 'sent 2-2'])
  })

  test('one of many processes sends each instant', async () => {
    const all = await Promise.all(Array.from({ length: 6 }, () => process([minutely(), minutely({}, 'other')])))
    for (const minute of [1, 2, 3]) {
      await at(minute)
      await Promise.all(all.map((each) => each.fire()))
    }
    expect((await sent()).toSorted((a, b) => a - b)).toEqual([1, 1, 2, 2, 3, 3])
    // The others found the instant done; none of them violated the key of the records.
    expect(told).toEqual([])
  })

  test('schedules that are due at one instant do not wait for each other', async () => {
    const mine = await process([minutely({}, 'first'), minutely({}, 'second')])
    let begun = 0
    watch(async (point) => {
      if (point !== 'schedule.fire') return
      begun++
      await until(() => begun === 2, 'both fire')
    })
    onTestFinished(() => watch(undefined))
    await at(1)
    await mine.fire()
    expect([await sent(), told]).toEqual([[1, 1], []])
  })

  test('a lost reply makes no second job', async () => {
    let lost = 0
    const losing: Pick<Db, 'call'> = {
      async call(name, sql, params) {
        const rows = await db.call(name, sql, params)
        if (sql.includes(`.${scheduleCalls.fire}(`) && lost++ === 0)
          throw new StoreError('SLUICE_STORE_UNREACHABLE', 'lost')
        return rows as never
      },
    }
    const mine = await process([minutely()], { db: losing as Db })
    await at(1)
    await expect(mine.fire()).rejects.toThrow('lost')
    await mine.fire()
    expect([lost, await sent()]).toEqual([1, [1]])
  })

  test.each([
    { catchUp: 'none', due: [59, 60], missed: ['missed 1-58'] },
    { catchUp: 'last', due: [59, 60], missed: ['missed 1-58'] },
    { catchUp: 'all', due: Array.from({ length: 60 }, (_, i) => i + 1), missed: [] },
  ] as const)(
    'after an hour away, $catchUp sends the instant due within the minute, and what it states of the rest',
    async (how) => {
      const mine = await process([minutely({ catchUp: how.catchUp })])
      await at(60)
      await mine.fire()
      expect(await sent()).toEqual(how.due)
      expect((await records()).filter((record) => record.startsWith('missed'))).toEqual(how.missed)
      await at(61)
      await mine.fire()
      expect((await sent()).at(-1)).toBe(61)
    },
  )

  test.each([
    { catchUp: 'none', due: [], all: ['missed 60-120'] },
    { catchUp: 'last', due: [120], all: ['missed 60-60', 'sent 120-120'] },
    { catchUp: 'all', due: [60, 120], all: ['sent 60-60', 'sent 120-120'] },
  ] as const)('two missed hourly instants are sent as the policy states: $catchUp', async ({ catchUp, due, all }) => {
    const mine = await process([minutely({ cron: '0 * * * *', catchUp })])
    await at(130)
    await mine.fire()
    expect([await sent(), await records()]).toEqual([due, all])
  })

  test('`all` sends the newest 1,000 instants after two weeks, and reports what it left out', async () => {
    const mine = await process([minutely({ catchUp: 'all' })])
    const end = 14 * 24 * 60
    await at(end)
    await mine.fire()
    const all = await sent()
    expect([all.length, all[0], all.at(-1)]).toEqual([1_002, end - 1_001, end])
  })

  test('a store clock an hour back repeats no instant and goes on after it, and one an hour forward and back does so as well', async () => {
    const mine = await process([minutely({ catchUp: 'all' })])
    await at(70)
    await mine.fire()
    await at(10)
    expect(await mine.fire()).toBe(10_000)
    // Also processes that start meanwhile, with the same instants or with others.
    await (await process([minutely({ catchUp: 'all' })])).fire()
    await at(71)
    await mine.fire()
    await at(131)
    await mine.fire()
    await at(72)
    const changed = await process([minutely({ catchUp: 'all', cron: '*/2 * * * *' })])
    await changed.fire()
    await at(131.9)
    await changed.fire()
    await at(132)
    await changed.fire()
    expect(await sent()).toEqual(Array.from({ length: 132 }, (_, i) => i + 1))
  })

  test('a worker’s own clock does not matter', async () => {
    for (const offMs of [-hourMs, hourMs]) {
      const own = { ...systemClock, wallMs: () => systemClock.wallMs() + offMs }
      const mine = await process([minutely()], { clock: own })
      await at(offMs < 0 ? 1 : 2)
      await mine.fire()
    }
    expect(await sent()).toEqual([1, 2])
  })

  test('`skip` sends no job beside an unfinished one, and records the instants', async () => {
    const mine = await process([minutely({ overlap: 'skip' })])
    for (const minute of [1, 2, 3]) {
      await at(minute)
      await mine.fire()
    }
    expect(await sent()).toEqual([1])
    const [job] = await sluice.list()
    await sluice.jobs.cancel(job?.id ?? '')
    await at(5)
    await mine.fire()
    expect(await sent()).toEqual([4])
    expect(await records()).toEqual(['sent 1-1', 'skipped 2-2', 'skipped 3-3', 'sent 4-4', 'skipped 5-5'])
  })

  test('a paused schedule lets its instants pass, and goes on with the next one when it is resumed', async () => {
    const mine = await process([minutely({ catchUp: 'all' })])
    await at(1)
    expect([await sluice.schedules.pause('minutely'), await sluice.schedules.pause('none')]).toEqual([true, false])
    await mine.fire()
    // A restart does not resume the schedule.
    await (await process([minutely({ catchUp: 'all' })])).fire()
    expect(await sluice.schedules.list()).toMatchObject([{ state: 'paused', next: [] }])
    await at(20)
    expect([await sluice.schedules.resume('minutely'), await sluice.schedules.resume('minutely')]).toEqual([
      true,
      false,
    ])
    await mine.fire()
    await at(21)
    await mine.fire()
    expect(await sent()).toEqual([21])
  })

  test('a removed schedule fires nowhere until a worker starts with it', async () => {
    const mine = await process([minutely()])
    for (const max of [0, 1.5, NaN, 1_001])
      await expect(sluice.schedules.history('minutely', { max })).rejects.toMatchObject({ code: 'SLUICE_BAD_OPTION' })
    expect([await sluice.schedules.remove('minutely'), await sluice.schedules.remove('minutely')]).toEqual([
      true,
      false,
    ])
    await at(1)
    await mine.fire()
    expect([await sent(), await sluice.schedules.list()]).toEqual([[], []])
    const again = await process([minutely()])
    await at(2)
    await again.fire()
    expect(await sent()).toEqual([2])
  })

  test('a process with other code fires a schedule only when no process has the stored definition any more', async () => {
    const old = await process([minutely({ catchUp: 'all' })])
    const late = await process([minutely({ cron: '*/10 * * * *' })])
    await at(5)
    await old.fire()
    expect(await sent()).toEqual([])
    await at(10)
    await old.fire()
    expect(await sent()).toEqual([])
    await late.fire()
    expect(await sent()).toEqual([10])
    // Its next instant is more than a minute overdue: no other process lives.
    await at(22)
    await old.fire()
    await old.fire()
    expect(await sent()).toEqual([10, 20, 21, 22])
  })

  test('a new definition loses no overdue instant, and repeats none', async () => {
    const old = await process([minutely({ catchUp: 'all' })])
    await at(3)
    await old.fire()
    await at(4)
    const changed = await process([minutely({ cron: '*/2 * * * *', catchUp: 'all' })])
    await changed.fire()
    expect(await sent()).toEqual([1, 2, 3, 4])
    // The same instants in another notation: the schedule goes on where it was.
    await at(6)
    await (await process([minutely({ cron: '*/2 * * * *', catchUp: 'all', input: { account: 'a2' } })])).fire()
    expect(await sent()).toEqual([1, 2, 3, 4, 6])
  })

  test('an instant of other rules of the time zone is sent, and a worker that starts goes by its own rules', async () => {
    const hourly = minutely({ cron: '0 * * * *' })
    const { text, after } = hourly.timing
    const earlier = { ...hourly, timing: { text, after: (ms: number) => after(ms + 15 * minuteMs) - 15 * minuteMs } }
    await process([earlier])
    const mine = new ScheduleRunner({ store: storeOn(db), schedules: [hourly], rulebook: new Rulebook() })
    await at(45)
    expect([await mine.fire(), await mine.fire(), await sent()]).toEqual([0, 10_000, [45]])
    await at(60)
    await mine.fire()
    // The next is stored at 105, and is at 120 by the rules of the one that starts.
    await process([earlier])
    await process([hourly])
    await at(106)
    await mine.fire()
    await at(120)
    await mine.fire()
    expect(await sent()).toEqual([45, 60, 120])
    expect(await records()).toEqual(['sent 45-45', 'sent 60-60', 'sent 120-120'])
  })

  test('a job that cannot be created leaves its instant due and other schedules alone, and is logged once', async () => {
    let broken = false
    const input = () => {
      if (broken) throw new Error('no such account')
      return { account: 'a1' }
    }
    let nowMs = 0
    const own = { ...systemClock, monotonicMs: () => nowMs }
    const mine = await process([minutely({ input }), minutely({}, 'other')], { clock: own })
    broken = true
    await at(1)
    await mine.fire()
    await mine.fire()
    nowMs += 5_001
    await mine.fire()
    expect(told).toEqual([expect.stringContaining('the job of schedule "minutely" is due and cannot be sent')])
    expect(await sluice.schedules.list()).toMatchObject([
      { name: 'minutely', error: 'schedule "minutely": no such account', last: null },
      { name: 'other', error: null, last: { outcome: 'sent' } },
    ])
    await at(2.5)
    expect((await sluice.schedules.list())[0]).toMatchObject({ state: 'overdue' })
    broken = false
    nowMs += 5_001
    await mine.fire()
    expect(await records()).toEqual(['missed 1-1', 'sent 2-2'])
    expect((await sluice.schedules.list())[0]).toMatchObject({ state: 'active', error: null })
  })

  test.runIf(engine.name === 'PostgreSQL')(
    'a schedule that another transaction has locked delays no other, and is reported when it is overdue',
    async () => {
      const mine = await process([minutely(), minutely({}, 'other')])
      const fireLocked = () =>
        db.transaction(async (tx) => {
          await tx.query(`select from sluice.schedule where name = 'minutely' for update`)
          await mine.fire()
        })
      await at(1)
      await fireLocked()
      expect([await records(), await records('other')]).toEqual([[], ['sent 1-1']])
      await mine.fire()
      expect([await records(), told]).toEqual([['sent 1-1'], []])
      await at(4)
      await fireLocked()
      expect(told).toEqual([expect.stringContaining('the job of schedule "minutely" is due and cannot be sent')])
      expect((await records('other')).at(-1)).toBe('sent 4-4')
    },
  )

  test.runIf(engine.name === 'PostgreSQL')(
    'large jobs of many instants are made once, for several statements',
    async () => {
      let [made, statements] = [0, 0]
      const input = () => ({ account: 'a1', note: 'x'.repeat(made++ && 150_000) })
      const mine = await process([minutely({ catchUp: 'all', input })])
      await at(60)
      watch((point) => void (point === 'schedule.fired' && statements++))
      onTestFinished(() => watch(undefined))
      await mine.fire()
      expect([made, statements]).toEqual([61, 2])
      expect([await sent(), (await records()).length]).toEqual([Array.from({ length: 60 }, (_, i) => i + 1), 60])
    },
  )

  test('a worker that stops fires no further schedule', async () => {
    const stop = new AbortController()
    const names = Array.from({ length: 30 }, (_, index) => `s${index}`)
    const mine = await process(names.map((name) => minutely({}, name)))
    await at(1)
    watch((point) => void (point === 'schedule.fired' && stop.abort()))
    onTestFinished(() => watch(undefined))
    await mine.fire(stop.signal)
    expect([await records('s0'), await records('s29')]).toEqual([['sent 1-1'], []])
  })

  test('jitter delays the job, not the instant', async () => {
    const own = { ...systemClock, random: () => 0.5 }
    const mine = await process([minutely({ jitter: '40s' })], { clock: own })
    await at(1)
    await mine.fire()
    const [job] = await db.query<{ due_at: Date }>('select due_at from sluice.job')
    expect([job?.due_at, await sent()]).toEqual([new Date(startMs + 50_000), [1]])
  })

  test('a manual run sends a job beside those of the instants', async () => {
    const mine = await process([minutely({ overlap: 'skip' })])
    const id = await sluice.schedules.trigger(minutely({ input: (when) => ({ account: when.toISOString() }) }))
    expect(await sluice.jobs.get(id)).toMatchObject({
      input: { account: '2026-06-01T12:00:30.000Z' },
      tags: ['schedule:minutely', 'scheduled-for:2026-06-01T12:00:30.000Z', 'triggered'],
    })
    const named = sluice.schedules.trigger('minutely' as never)
    await expect(named).rejects.toMatchObject({ code: 'SLUICE_BAD_SCHEDULE' })
    await at(1)
    await mine.fire()
    expect(await sent()).toEqual([0.5, 1])
  })
})
