/** Dispatchers and workers in processes of their own. */
import { type ChildProcess, fork } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, type TestContext } from 'vitest'
import { z } from 'zod'
import { limit } from '../../src/limits/limit.ts'
import { Sluice } from '../../src/sluice.ts'
import { task } from '../../src/tasks/task.ts'
import { vendor } from '../../src/testing/vendor.ts'
import { freshDatabase } from '../servers/database.ts'
import { isLong } from '../long.ts'
import { until } from '../until.ts'
import { member } from '../v8.ts'

/** What a process reports of an attempt that it begins. */
interface Run {
  id: string
  attempt: number
  ambiguous: boolean
  pid: number
  /** When it began, by the clock of the machine. */
  atMs: number
}

const input = z.object({ gate: z.string().optional(), key: z.string().optional() })
/** The tasks of member.mjs: `note` and `rare` wait for their gate, `call` and `rare` have a limit. */
export const note = task('note', { input, run: () => undefined })
export const rare = task('rare', { input, limits: [limit('rare', { window: '1/h' })], run: () => undefined })
export const call = task('call', {
  input: z.object({ key: z.string() }),
  limits: [limit('paced', { rate: '200/s', by: 'key' })],
  run: () => undefined,
})

/**
 * 100 a second; in the short form 20, which is less than one worker can call on a busy machine, in windows of 10 s, since a grant
 * has to live longer there than windows of a second allow.
 */
const [ringMost, ringMs] = isLong ? [100, 1_000] : [200, 10_000]
const ringRate: `${number}/${number}s` = `${ringMost}/${ringMs / 1_000}s`
export const ring = task('ring', {
  input: z.object({ url: z.string() }),
  limits: [limit('ringing', { rate: ringRate })],
  allowPrivate: ['127.0.0.1'],
  run: () => undefined,
})
/** A vendor that allows what `ring` may call. */
export const ringVendor = () => vendor({ rules: [{ algorithm: 'sliding log', limit: ringMost, windowMs: ringMs }] })

/** A store, and the processes of a fleet on it, which end with the test. */
export async function createFleet(amqp: string, { onTestFinished }: Pick<TestContext, 'onTestFinished'>, redis = '') {
  const { url } = await freshDatabase()
  const children: ChildProcess[] = []
  const runs: Run[] = []
  const folder = mkdtempSync(join(tmpdir(), 'sluice-fleet-'))
  const sluice = await Sluice.open({ store: url, redis })
  onTestFinished(async () => {
    for (const child of children) child.kill('SIGKILL')
    await sluice.close()
    rmSync(folder, { recursive: true })
  })
  /**
   * @param role `join`: as a worker without a store
   * @param workers so many of them in one process @param crashAt the point at which the process kills itself
   */
  const start = async (role: 'dispatch' | 'execute' | 'join', slots = 4, by = amqp, workers = 1, crashAt = '') => {
    const args = [role, role === 'join' ? '' : url, by, String(slots), String(workers)]
    const child = fork(fileURLToPath(new URL('member.mjs', import.meta.url)), args, {
      execArgv: member,
      env: { ...process.env, REDIS_URL: redis, RING_RATE: ringRate, SLUICE_CRASH_AT: crashAt },
    })
    children.push(child)
    let isReady = false
    child.on('message', (message) => {
      if (message === 'ready') isReady = true
      else runs.push(message as Run)
    })
    await until(() => isReady || child.signalCode !== null, `a process is ready to ${role}`)
    return child
  }
  const count = async (sql: string) => {
    const [row] = await sluice.db.query<{ n: number }>(`select count(*)::int as n from sluice.${sql}`)
    return row?.n ?? 0
  }
  const nowUs = async () => {
    const [row] = await sluice.db.query<{ us: string }>('select sluice.now_us() as us')
    return Number(row?.us)
  }
  /** Resolves when so many seconds have passed. */
  const pass = async (seconds: number) => {
    const sinceUs = await nowUs()
    const untilUs = sinceUs + seconds * 1_000_000
    await until(async () => (await nowUs()) > untilUs, `${seconds} s have passed`, seconds * 1_000 + 60_000)
  }
  const areDone = (n: number) => until(async () => (await count('done')) === n, `${n} jobs are done`)
  const stateOf = async (id: string) => (await sluice.jobs.get(id))?.state
  const gate = join(folder, 'gate')
  return {
    url,
    sluice,
    runs,
    start,
    count,
    pass,
    areDone,
    attempts: () => attemptsOf(sluice),
    checkDeadlines: () => checkDeadlines(sluice, runs),
    stateOf,
    gate,
    open: () => writeFileSync(gate, ''),
  }
}

/** No second holds more calls than the limit of `call` allows. */
export function checkRate(runs: readonly Run[]): void {
  const times = runs.map(({ atMs }) => atMs).toSorted((a, b) => a - b)
  const most = Math.max(
    ...times.map((fromMs) => times.filter((atMs) => atMs >= fromMs && atMs < fromMs + 1_000).length),
  )
  expect(most).toBeLessThanOrEqual(200)
}

/** Every attempt began once, and a job ran again only as an ambiguous attempt. */
export function checkOnce(runs: readonly Run[]): void {
  expect(new Set(runs.map(({ id, attempt }) => `${id} ${attempt}`)).size).toBe(runs.length)
  const again = runs.filter(({ attempt }) => attempt > 1)
  expect(again.filter(({ ambiguous }) => !ambiguous)).toEqual([])
}

/** All attempts of jobs that are done. */
async function attemptsOf(sluice: Sluice): Promise<number> {
  const [row] = await sluice.db.query<{ n: number }>('select coalesce(sum(attempt), 0)::int as n from sluice.done')
  return row?.n ?? 0
}

/** No attempt began later than the longest life of a grant, a second, after its claim. */
async function checkDeadlines(sluice: Sluice, runs: readonly Run[]): Promise<void> {
  const rows = await sluice.db.query<{ id: string; attempt: number; ms: string }>(
    'select d.id, d.attempt, extract(epoch from d.dispatched_at) * 1000 as ms from sluice.done d',
  )
  const claimed = new Map(rows.map(({ id, attempt, ms }) => [`${id} ${attempt}`, Number(ms)]))
  const ages = runs.flatMap(({ id, attempt, atMs }) => atMs - (claimed.get(`${id} ${attempt}`) ?? Infinity))
  expect(ages.length).toBe(rows.length)
  expect(Math.max(...ages)).toBeLessThanOrEqual(1_000)
  // The clocks are the same one.
  expect(Math.min(...ages)).toBeGreaterThan(-5)
}
