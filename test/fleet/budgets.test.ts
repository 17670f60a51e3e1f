/** Budgets: quotas of which a share is used raise an alarm once in a period, in one process of the fleet. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { beforeAll, beforeEach, expect, it } from 'vitest'
import { newId } from '../../src/core/hash.ts'
import { sqlOn, storeOn } from '../../src/db/store.ts'
import { defineLimit } from '../../src/claim/definitions/define.ts'
import type { AlarmOptions } from '../../src/fleet/alarm-kinds.ts'
import { Alarms, readRaisedAlarms } from '../../src/fleet/alarms.ts'
import { limit, type LimitOptions } from '../../src/index.ts'
import type { SluiceEvents } from '../../src/report/events.ts'
import { Report } from '../../src/report/report.ts'
import { acquire } from '../takes/engine.ts'
import { empty, ownClock } from '../claim/engine.ts'
import { keptLog, SteppedClock } from '../report/stage.ts'
import { freshSluice } from '../servers/sluice.ts'
import { addBucket, refund } from '../limits/engine.ts'

// The middle of a day, and of a month.
const startMs = Date.parse('2026-11-16T00:00:00Z')
const hourMs = 3_600_000
let storeClock: { set(ms: number): Promise<void> }
let nowMs: number
let names = 0

const sluice = await freshSluice()
beforeAll(async () => {
  storeClock = await ownClock(sluice.db, startMs)
})
beforeEach(async () => {
  await empty(sluice.db)
  nowMs = startMs
  await storeClock.set(startMs)
})

const pass = async (ms: number) => storeClock.set((nowMs += ms))

async function define(options: LimitOptions, keys: readonly string[] = ['a', 'b']): Promise<string> {
  const name = `budget${++names}`
  await defineLimit(sqlOn(sluice.db), limit(name, { by: 'key', transit: 0, ...options } as never))
  for (const key of keys) await addBucket(sluice.db, name, key)
  return name
}

const use = async (name: string, cost: number, key = 'a') => {
  const grant = newId()
  expect((await acquire(sluice.db, `${name}:${key}`, { cost, grant })).granted).toBe(true)
  return grant
}

/** A process of the fleet; `look` lets it look as 15 s later, and returns what it reports. */
function watcher(options: AlarmOptions = {}) {
  const clock = new SteppedClock()
  const { lines, log } = keptLog()
  const report = new Report(clock, log)
  const alarms = new Alarms(storeOn(sluice.db, { clock, report }), options)
  const events: SluiceEvents['budget'][] = []
  report.on('budget', (event) => events.push(event))
  const look = async () => {
    clock.advance(16_000)
    await alarms.check()
    return events.splice(0)
  }
  return { alarms, lines, look }
}
const short = (events: SluiceEvents['budget'][]) => events.map(({ key, share }) => `${key} ${share}`).toSorted()

it('a key that has used four fifths of a daily quota raises one alarm, with the time at which it is used up', async () => {
  const name = await define({ quota: '1000/day' })
  const one = watcher()
  await pass(12 * hourMs)
  await use(name, 799)
  expect(await one.look()).toEqual([])
  await use(name, 21)
  const events = await one.look()
  expect(events).toEqual([
    {
      limit: name,
      key: 'a',
      quota: '1000/day',
      share: 0.8,
      used: 820,
      most: 1_000,
      currency: undefined,
      from: new Date(startMs),
      until: new Date(startMs + 24 * hourMs),
      usedUpAt: new Date(startMs + (12 * hourMs * 1_000) / 820),
      text: `limit ${name} for a has used 820 of its quota of 1000/day (82 %): at this pace used up by 2026-11-16T14:38:02.926Z`,
    },
  ])
  expect(one.lines).toMatchObject([
    { level: 'warn', message: `budget: ${events[0]?.text}`, details: { limit: name, key: 'a' } },
  ])
  await use(name, 100)
  expect(await one.look()).toEqual([])
  expect(await readRaisedAlarms(sqlOn(sluice.db))).toMatchObject([
    { alarm: 'budget', subject: `${name}:a`, value: 920, text: expect.stringContaining('has used 920 of') },
  ])
  // The next day.
  await pass(13 * hourMs)
  await use(name, 1)
  expect(await one.look()).toEqual([])
  expect(await readRaisedAlarms(sqlOn(sluice.db))).toEqual([])
  await use(name, 799)
  expect(short(await one.look())).toEqual(['a 0.8'])
})

it('each share is reported once, the greatest of those that are reached together, and by one process of several', async () => {
  const name = await define({ quota: '1000/day', alarmAt: [0.5, 0.8, 1] })
  const all = [watcher(), watcher(), watcher()]
  const look = async () => short((await Promise.all(all.map((one) => one.look()))).flat())
  // Right after midnight a refund would make no room yet.
  await pass(hourMs)
  await use(name, 600)
  const grant = await use(name, 300, 'b')
  expect(await look()).toEqual(['a 0.5'])
  // Two shares at once.
  await use(name, 600, 'b')
  expect(await look()).toEqual(['b 0.8'])
  // Below the share again, and back.
  await refund(sluice.db, `${name}:b`, grant, 300)
  expect(await look()).toEqual([])
  await use(name, 300, 'b')
  expect(await look()).toEqual([])
  await use(name, 100, 'b')
  expect(await look()).toEqual(['b 1'])
  expect((await readRaisedAlarms(sqlOn(sluice.db))).map(({ text }) => text)).toEqual([
    expect.stringContaining(`${name} for a has used 600 of`),
    expect.stringContaining(
      `${name} for b has used up its quota of 1000/day; it has room again at 2026-11-17T00:00:00.000Z`,
    ),
  ])
})

it('another process goes on where the last one ended, and a changed quota begins anew', async () => {
  const name = await define({ quota: '1000/day' })
  await pass(hourMs)
  await use(name, 850)
  expect(short(await watcher().look())).toEqual(['a 0.8'])
  expect(await readRaisedAlarms(sqlOn(sluice.db))).toHaveLength(1)
  await sluice.limits.set(name, { quota: '2000/day' }, { reason: 'a larger plan' })
  expect(await readRaisedAlarms(sqlOn(sluice.db))).toEqual([])
  await use(name, 1)
  expect(await watcher().look()).toEqual([])
  expect(await readRaisedAlarms(sqlOn(sluice.db))).toEqual([])
  await use(name, 800)
  expect(await watcher().look()).toMatchObject([{ quota: '2000/day', used: 1_651 }])
})

it('short and small quotas raise alarms only if their limit wants that', async () => {
  const quiet = [
    await define({ quota: '1000/h' }),
    await define({ quota: '1/day' }),
    await define({ quota: '1000/day', alarmAt: [] }),
  ]
  for (const name of quiet) await use(name, 1)
  for (const name of [quiet[0], quiet[2]]) await use(name ?? '', 998)
  const loud = await define({ quota: ['10/h', '1000/day'], alarmAt: [0.5] })
  await use(loud, 6)
  expect(await watcher().look()).toMatchObject([{ limit: loud, quota: '10/h', share: 0.5 }])
})

it('budgets are sent to the webhook of alarms, at most 20 in one look', async () => {
  const bodies: { alarm: string; subject: string }[] = []
  const server = createServer((request, response) => {
    let text = ''
    request.on('data', (chunk) => (text += String(chunk)))
    request.on('end', () => {
      bodies.push(JSON.parse(text))
      response.end()
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const keys = Array.from({ length: 25 }, (_, i) => `k${i}`)
  const name = await define({ quota: '1000/day' }, keys)
  for (const key of keys) await use(name, 900, key)
  const one = watcher({ webhook: `http://127.0.0.1:${(server.address() as AddressInfo).port}/` })
  expect(await one.look()).toHaveLength(25)
  await one.alarms.settled()
  server.close()
  expect(bodies).toHaveLength(20)
  expect(bodies[0]).toMatchObject({
    alarm: 'budget',
    subject: expect.stringMatching(`^${name}:k`),
    isRaised: true,
    value: 900,
    threshold: 800,
    text: expect.stringMatching(/^Sluice: limit .* has used 900 of its quota of 1000\/day \(90 %\)/),
    todo: expect.stringContaining('`sluice limits usage`'),
  })
})

it('a budget rejects shares that mean nothing', () => {
  const made =
    (alarmAt: unknown, rest: object = { quota: '10/day' }) =>
    () =>
      limit('x', { ...rest, alarmAt } as never)
  expect(made([0.5], { rate: '1/s' })).toThrow('alarmAt belongs to a quota')
  for (const alarmAt of [0.8, [0], [1.1], ['1'], Array(9).fill(1)])
    expect(made(alarmAt)).toThrow('it is a list of up to 8 shares, above 0, up to 1')
})
