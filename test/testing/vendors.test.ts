/**
 * Our schedules against vendors' ways of counting: first as arithmetic, which gives limits.md 0 to the last digit; then
 * with real traffic, scaled in time. `npm run vendors` prints the whole table (some four minutes on a machine that does
 * nothing else); every other run takes two cells of it.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { guaranteeOf, guarantees, limit, Sluice, task } from '../../src/index.ts'
import type { Arrival, VendorOptions } from '../../src/testing/index.ts'
import { charge, emptyWindow, waitOf, type WindowRule } from '../../src/testing/window.ts'
import { greedy, worst } from '../limits/oracle.ts'
import { count } from '../claim/engine.ts'
import { isLong } from '../long.ts'
import { freshDatabase } from '../servers/database.ts'
import { until } from '../until.ts'
import {
  logTimes,
  minuteScale,
  plainRules,
  type Scale,
  type Schedule,
  schedules,
  times,
  vendorRules,
  worstRefused,
  written,
} from './schedule.ts'

const names = Object.keys(vendorRules(minuteScale))
/** Refused of 1,000 calls (of the safe rate 900) at 100 a minute, in the worst phase: limits.md 0. */
const table: Record<Schedule, number[]> = {
  'safe rate': [0, 0, 1, 0, 0],
  'bucket(N, N/W)': [99, 99, 107, 0, 90],
  // A log without parts, which sub-buckets approximate: the counter refuses 500 of its calls.
  'exact window': [0, 0, 466, 0, 900],
  spacing: [0, 0, 10, 0, 0],
  'fixed, wrong phase': [100, 100, 500, 99, 909],
}
const callsOf = (schedule: Schedule) => (schedule === 'safe rate' ? 900 : 1_000)

describe('without delays, at 100 a minute', () => {
  const refusedBy = (at: number[]) => names.map((name) => worstRefused(rule(name, minuteScale), at))

  it.each(schedules)('%s is refused as often as the table of worst cases lists', (schedule) => {
    const at = times(schedule, plainRules(schedule, minuteScale), callsOf(schedule), minuteScale)
    expect(refusedBy(at)).toEqual(table[schedule])
  })

  it('calls that fit an exact sliding window are refused 500 times by a counter, and 900 times by a small bucket', () => {
    expect(refusedBy(logTimes(1_000, minuteScale))).toEqual([0, 0, 500, 0, 900])
  })
})

describe('delays that fall, as in discord-api-docs#5144: 217 to 259 ms, then 127, then 78', () => {
  const vendor: WindowRule = { algorithm: 'sliding log', limit: 50, windowNs: 1e9, burst: 50 }
  const delayMs = (i: number) => (i < 50 ? 217 + (42 * i) / 49 : i < 100 ? 127 : 78)
  /** The numbers of the refused calls among 150, from 0. */
  const refusedOf = (sentMs: readonly number[]) => {
    const state = emptyWindow(vendor)
    return sentMs.flatMap((ms, i) => {
      const atNs = Math.round((ms + delayMs(i)) * 1e6)
      if (waitOf(vendor, state, atNs) > 0) return [i]
      charge(vendor, state, atNs)
      return []
    })
  }

  it('bring the 101st call 963 ms after the second batch of 50, where the vendor refuses it', () => {
    const sent = Array.from({ length: 150 }, (_, i) => [0, 1_150, 2_162][Math.floor(i / 50)] ?? 0)
    expect((sent[100] ?? 0) + delayMs(100) - (sent[50] ?? 0) - delayMs(50)).toBe(963)
    expect(refusedOf(sent)[0]).toBe(100)
  })

  it('cause no refusal with a margin of 190 ms', () => {
    const { rules, grantUs, transitUs } = limit('discord', { window: '50/s', transit: 90 })
    expect(grantUs + transitUs).toBe(190_000)
    const sent = greedy(rules, 0, 150).flatMap(([atUs, units]) => Array<number>(units).fill(atUs / 1_000))
    expect([sent.length, refusedOf(sent)]).toEqual([150, []])
  })
})

function rule(name: string, scale: Scale): WindowRule {
  return vendorRules(scale)[name] as WindowRule
}

interface Cell {
  schedule: Schedule
  vendor: string
  calls: number
  arrivals: Arrival[]
}

const children = new Set<ChildProcess>()
const serveFile = fileURLToPath(new URL('./serve.mjs', import.meta.url))

/** Vendors in a process of their own. They refuse by a 403, which holds nothing back, so that one schedule is counted. */
async function serve(vendors: readonly string[], scale: Scale): Promise<string[]> {
  const all = vendors.map((name): VendorOptions => {
    const { algorithm, limit: units, burst } = rule(name, scale)
    return { rules: [{ algorithm, limit: units, windowMs: scale.windowMs, burst }], deniedStatus: 403 }
  })
  const child = spawn(process.execPath, [serveFile, JSON.stringify(all)], { stdio: ['pipe', 'pipe', 'inherit'] })
  children.add(child)
  child.once('exit', () => children.delete(child))
  return JSON.parse(String((await once(createInterface(child.stdout), 'line'))[0])) as string[]
}

describe('with real traffic', () => {
  let sluice: Sluice
  beforeAll(async () => {
    sluice = await Sluice.open({ store: (await freshDatabase()).url })
  })
  afterEach(async () => {
    const ends = [...children].map((child) => once(child, 'exit'))
    for (const child of children) child.kill('SIGKILL')
    await Promise.all(ends)
  })
  afterAll(() => sluice.close())

  /** One schedule against these vendors, at the same time. */
  async function run(schedule: Schedule, vendors: string[], calls: number, scale: Scale, transitMs: number) {
    const urls = await serve(vendors, scale)
    const name = schedule.replaceAll(/[^a-z]+/gi, '-').toLowerCase()
    const isFixed = schedule === 'fixed, wrong phase'
    const own = limit(name, { ...written(schedule, scale, transitMs), by: 'vendor' })
    const call = task(`call-${name}`, {
      input: z.object({ vendor: z.string() }),
      ...(isFixed ? {} : { limits: [own] }),
      run: async ({ vendor }, { fetch }) => {
        const response = await fetch(urls[vendors.indexOf(vendor)] ?? '')
        await response.text()
      },
    })
    const each = (count: number) => Array.from({ length: count }, () => vendors.map((vendor) => ({ vendor }))).flat()
    if (isFixed) {
      // A quota's periods are a minute at least: here the jobs of each period are due together.
      const at = times(schedule, [], calls, scale)
      for (const ns of new Set(at)) {
        const inputs = each(at.filter((one) => one === ns).length)
        await sluice.sendMany(call, inputs, { delay: ns / 1e6 + 2_000 })
      }
    } else await sluice.sendMany(call, each(calls))
    const worker = await sluice.work([call], { concurrency: 200 })
    const waiting = async () => await count(sluice.db, `sluice.job where task = 'call-${name}'`)
    // A busy machine lets grants grow old before they are used: then the table covers the calls that arrived until then.
    const limitMs = isLong ? 400_000 : 60_000
    await until(async () => (await waiting()) === 0, 'all jobs ended', limitMs).catch(() => {})
    await worker.stop()
    const arrived = (url: string) => fetch(`${url}/.vendor/arrivals`).then((got) => got.json() as Promise<Arrival[]>)
    const arrivals = await Promise.all(urls.map(arrived))
    return vendors.map((vendor, i): Cell => ({ schedule, vendor, calls, arrivals: arrivals[i] ?? [] }))
  }

  const refusedOf = ({ arrivals }: Cell) => arrivals.filter(({ verdict }) => verdict === 403).length
  const worstOf = ({ vendor, arrivals }: Cell, scale: Scale) =>
    worstRefused(
      rule(vendor, scale),
      arrivals.map(({ atNs }) => atNs),
    )

  it.skipIf(isLong)('the default rate is never refused by a sliding log, and the usual bucket is', async () => {
    // The usual bucket's last four calls come in 2 s, within the window of the first 20 however busy the machine is.
    const [[safe], [usual]] = await Promise.all([
      run('safe rate', ['sliding log'], 20, { units: 20, windowMs: 2_000 }, 1_000),
      run('bucket(N, N/W)', ['sliding log'], 24, { units: 20, windowMs: 20_000 }, 1_000),
    ])
    expect(safe?.arrivals.length).toBeGreaterThan(0)
    expect(refusedOf(safe as Cell)).toBe(0)
    expect(refusedOf(usual as Cell)).toBeGreaterThan(0)
  })

  it.runIf(isLong)('every schedule against every vendor is refused as the table lists', async () => {
    const scale = { units: 100, windowMs: 20_000 }
    const transitMs = 300
    const start = (one: Schedule) => run(one, names, callsOf(one), scale, transitMs)
    const others = Promise.all(schedules.filter((one) => one !== 'safe rate').map(start))
    // Three of them begin with all that a window allows, to five vendors each. On two cores the last of these requests arrive
    // seconds later, and so would those of the safe rate, for which 300 ms are allowed.
    const bursts = 3 * names.length * scale.units
    await Promise.race([others, until(async () => (await sluice.jobs.status()).done >= bursts, 'the bursts are over')])
    const runs = [await start('safe rate'), ...(await others)]
    console.log(
      `100 per 20 s, ${transitMs} ms of transit allowed, 1,000 calls (safe rate 900). Refused: by the vendor,`,
    )
    console.log('by its like in the worst phase, as expected here, as expected without margin (limits.md 0)')
    console.log(
      line(
        'our schedule',
        'vendor',
        'seen',
        'any phase',
        'expected',
        'limits.md',
        'calls',
        'worst 20 s',
        'of nominal',
        'promised',
      ),
    )
    for (const cell of runs.flat()) report(cell, scale, transitMs)
    const knownOf = ({ schedule, vendor }: Cell) => table[schedule][names.indexOf(vendor)] ?? 0
    const safe = runs.flat().filter((cell) => cell.schedule === 'safe rate' && knownOf(cell) === 0)
    // A small bucket may refuse what the limit's guarantee states, because the ways of calls may differ by what is allowed: so many each time that it
    // has become full again.
    const views = guaranteeOf(limit('a', written('safe rate', scale, transitMs))).vendors
    const bound = views.find(({ burst }) => burst === scale.units / 10)?.refused ?? 0
    const most = ({ vendor, calls }: Cell) => (vendor === 'small bucket' ? bound * Math.ceil(calls / scale.units) : 0)
    for (const cell of safe) {
      expect(refusedOf(cell), cell.vendor).toBeLessThanOrEqual(most(cell))
      expect(worstOf(cell, scale), cell.vendor).toBeLessThanOrEqual(most(cell))
    }
    // What is expected to be refused often, is; how often depends on how busy the machine is.
    const often = runs.flat().filter((cell) => knownOf(cell) >= 90)
    expect(often.filter((cell) => worstOf(cell, scale) === 0)).toEqual([])
  })

  function report(cell: Cell, scale: Scale, transitMs: number): void {
    const { schedule, vendor, arrivals } = cell
    const calls = arrivals.length
    const own = limit('a', written(schedule, scale, transitMs))
    const expected = worstRefused(rule(vendor, scale), times(schedule, own.rules, cell.calls, scale))
    const at = arrivals.map(({ atNs }) => [atNs / 1_000, 1] as const)
    const spanS = ((at.at(-1)?.[0] ?? 0) - (at[0]?.[0] ?? 0)) / 1e6
    const [promise] = guarantees(own)
    const perSecond = (calls - (promise?.burst ?? 0)) / spanS
    const nominal = perSecond / ((scale.units * 1_000) / scale.windowMs)
    const percent = (share: number) => `${(share * 100).toFixed(1)} %`
    const promised = schedule === 'fixed, wrong phase' ? '' : percent(perSecond / (promise?.perSecond ?? NaN))
    const most = worst(at, scale.windowMs * 1_000)
    const known = table[schedule][names.indexOf(vendor)]
    console.log(
      line(
        schedule,
        vendor,
        refusedOf(cell),
        worstOf(cell, scale),
        expected,
        known,
        calls,
        most,
        percent(nominal),
        promised,
      ),
    )
  }
})

function line(...cells: unknown[]): string {
  return cells.map((cell, i) => (i < 2 ? String(cell).padEnd(20) : String(cell).padStart(12))).join('')
}
