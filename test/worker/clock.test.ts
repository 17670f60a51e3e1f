import { afterEach, beforeEach, expect, it } from 'vitest'
import { storeOn } from '../../src/db/store.ts'
import { StoreClock, systemClock } from '../../src/core/clock.ts'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import { limit } from '../../src/limits/limit.ts'
import type { Sluice } from '../../src/sluice.ts'
import { StoreGrants } from '../../src/worker/grants.ts'
import { claim, engines, enter, openOn, ownClock, quietTask } from '../claim/engine.ts'
import { watchClock } from '../limits/engine.ts'

let sluice: Sluice

beforeEach(async () => void (sluice = await openOn(engines[0])))
afterEach(() => sluice.close())

it('a step forward of the store clock gives an attempt no extra time, and does not extend a hold', async () => {
  const { db } = sluice
  const startMs = 1_790_000_000_000
  const clock = await ownClock(db, startMs)
  await watchClock(db)
  const once = quietTask('once', [limit('once', { rate: '60/h', burst: 1 })])
  await sluice.send(once, {})
  const { jobs, nowUs } = await claim(db, await enter(db), ['once'], 1)
  const storeClock = new StoreClock()
  expect(storeClock.cap(0)).toBe(null)
  const readMs = systemClock.monotonicMs()
  storeClock.recordReading(nowUs, [readMs, readMs])
  await clock.set(startMs + 86_400_000)

  const job = { ...jobs[0], buckets: ['once'], grantedMs: systemClock.monotonicMs() } as unknown as ClaimedJob
  const grants = new StoreGrants({
    limits: [],
    store: storeOn(db),
    storeClock,
    job,
    grantMs: 30_000,
  })
  const { signal } = new AbortController()
  const denied = new Error('a wait')
  const noWait = () => {
    throw denied
  }
  await expect(grants.take(signal, noWait)).rejects.toBe(denied)
  await expect(grants.take(signal, noWait, grants.own)).resolves.toBeDefined()
  await expect(grants.take(signal, noWait)).rejects.toBe(denied)
  await grants.recordRefusal({ retryAfterMs: 1_000, answer: '429' }, grants.own)
  const [latest] = await db.query<{ at: string; hold: string }>(
    'select max(at) as at, max(hold) as hold from sluice.ledger',
  )
  expect(Number(latest?.at)).toBeLessThan((startMs + 600_000) * 1_000)
  expect(Number(latest?.hold)).toBeLessThan((startMs + 600_000) * 1_000)
})
