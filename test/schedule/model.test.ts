/**
 * Histories of one schedule: processes of several versions that stop between what they read and what they write, pauses, and a
 * clock that steps both ways. Each instant is handled once, and the schedule goes on.
 */
import fc from 'fast-check'
import { beforeEach, describe, expect, test } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import type { Db } from '../../src/db/db.ts'
import { storeOn } from '../../src/db/store.ts'
import type { Schedule } from '../../src/schedule/schedule.ts'
import { ScheduleRunner } from '../../src/schedule/schedule-runner.ts'
import { Schedules } from '../../src/schedule/schedules.ts'
import { Rulebook } from '../../src/tasks/rule.ts'
import { emptied, mainEngines, ownClock } from '../claim/engine.ts'
import { forAllInTime } from '../for-all.ts'
import { until } from '../until.ts'
import { scheduleCalls } from './engine.ts'
import { minutely } from './stage.ts'

const minuteMs = 60_000
const startMs = Date.parse('2026-06-01T12:00:00Z')
const versions = { minutely: '* * * * *', sparse: '*/3 * * * *', yearly: '0 0 1 1 *' }
/** What the statements have that change a schedule. */
const writes = [`.${scheduleCalls.fire}(`, 'insert into sluice.schedule', 'set paused_at = null']

type Version = keyof typeof versions
type Code = 'define' | 'fire' | 'resume'
/** `late`: the process stops before it writes, until a step `go`. */
type Step = ['move', minutes: number] | ['pause'] | ['go'] | [Code | `late ${Code}`, Version]

const oneOf = <T>(...all: T[]) => fc.constantFrom(...all)
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.tuple(
    oneOf('move' as const),
    fc.integer({ min: -6, max: 12 }).map((half) => half / 2),
  ),
  oneOf<Step>(['pause'], ['go']),
  fc.tuple(
    oneOf<Code | `late ${Code}`>('define', 'fire', 'fire', 'resume', 'late define', 'late fire', 'late resume'),
    oneOf<Version>('minutely', 'minutely', 'sparse', 'yearly'),
  ),
)

describe.each(mainEngines)('on $name', (engine) => {
  const store = emptied(engine)
  const told: unknown[] = []
  let clock: { set(ms: number): Promise<void> } | undefined
  let histories = 0
  beforeEach(() => void told.splice(0))

  const log = { debug() {}, info() {}, warn() {}, error: (...all: unknown[]) => void told.push(all) }
  const on = (db: Db) => storeOn(db, { clock: systemClock, log })
  const runnerOf = (schedule: Schedule, db = store.db) =>
    new ScheduleRunner({ store: on(db), schedules: [schedule], rulebook: new Rulebook() })
  const setClock = async (minute: number) => {
    clock ??= await ownClock(store.db, startMs)
    await clock.set(startMs + minute * minuteMs)
  }

  /** A connection whose writes wait for `go`; `isStopped`: one does. */
  function stopping() {
    let go = () => {}
    const gone = new Promise<void>((resolve) => (go = resolve))
    const stop = { isStopped: false, go }
    const call = async (name: string, sql: string, params: unknown[]) => {
      stop.isStopped = writes.some((text) => sql.includes(text))
      if (stop.isStopped) await gone
      return store.db.call(name, sql, params)
    }
    return { stop, db: Object.create(store.db, { call: { value: call } }) as Db }
  }

  /** Returns the instants for which there are jobs, newest first, in minutes; all of them are recorded as sent. */
  async function sent(name: string): Promise<number[]> {
    const rows = await store.sluice.schedules.history(name, { max: 1_000 })
    const jobs = await store.db.query<{ id: string }>('select id from sluice.job where $1 = any (tags)', [
      `schedule:${name}`,
    ])
    expect(new Set(rows.map(({ job }) => job))).toEqual(new Set(jobs.map(({ id }) => id)))
    return rows.map(({ at }) => (at.getTime() - startMs) / minuteMs)
  }

  /** Plays a history, lets all that is stopped go on, and then the latest code alone. */
  async function play(steps: readonly Step[]): Promise<{ instants: number[]; end: number }> {
    const name = `history-${histories++}`
    const codeOf = (version: Version) => minutely({ cron: versions[version], catchUp: 'all' }, name)
    const late: { go: () => void; ended: Promise<unknown> }[] = []
    let [now, latest] = [0.5, 0.5]
    await setClock(now)
    for (const [act, what] of steps) {
      if (act === 'move') await setClock((now += what))
      else if (act === 'pause') await store.sluice.schedules.pause(name)
      else if (act === 'go') for (const { go } of late.splice(0, 1)) go()
      else {
        const { stop, db } = stopping()
        const isLate = act.startsWith('late ')
        if (!isLate) stop.go()
        const runner = runnerOf(codeOf(what), db)
        const schedules = new Schedules(on(db), store.sluice)
        const run = { define: () => runner.define(), fire: () => runner.fire(), resume: () => schedules.resume(name) }
        let isEnded = false
        const ended = run[act.replace('late ', '') as Code]().finally(() => (isEnded = true))
        await until(() => isEnded || (isLate && stop.isStopped))
        late.push({ go: stop.go, ended })
      }
      latest = Math.max(latest, now)
    }
    for (const { go, ended } of late) {
      go()
      await ended
    }
    const end = Math.floor(latest) + 2
    for (const minute of [end - 1, end]) {
      await setClock(minute)
      const last = runnerOf(codeOf('minutely'))
      await last.define()
      await store.sluice.schedules.resume(name)
      await last.fire()
    }
    return { instants: await sent(name), end }
  }

  const each = 'minutely'
  test.each<{ what: string; steps: Step[] }>([
    {
      what: 'ends a pause that a process had read before another pause began',
      steps: [
        ['define', each],
        ['pause'],
        ['late resume', each],
        ['resume', each],
        ['move', 2],
        ['fire', each],
        ['pause'],
      ],
    },
    {
      what: 'stores a definition that a process had computed before others were in force',
      steps: [
        ['define', 'yearly'],
        ['late define', each],
        ['define', each],
        ['move', 2],
        ['fire', each],
        ['define', 'yearly'],
      ],
    },
  ])('a late statement that $what handles no instant again, nor stops the schedule', async ({ steps }) => {
    const { instants, end } = await play(steps)
    expect([told, instants.toReversed()]).toEqual([[], Array.from({ length: end }, (_, i) => i + 1)])
  })

  test('each instant is handled once, and the schedule goes on', async () => {
    await forAllInTime(50, fc.array(step, { maxLength: 30 }), async (steps) => {
      const { instants, end } = await play(steps)
      expect(told).toEqual([])
      expect(new Set(instants).size).toBe(instants.length)
      expect(instants[0]).toBe(end)
    })
  }, 60_000)
})
