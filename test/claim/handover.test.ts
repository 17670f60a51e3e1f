/** Jobs in hand that workers elsewhere execute, when their dispatcher is another one than before, or ends. */
import { expect, it } from 'vitest'
import { type Clock, systemClock } from '../../src/core/clock.ts'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import { InHand } from '../../src/claim/in-hand.ts'
import type { Reports } from '../../src/claim/outlet.ts'
import { until } from '../until.ts'

const job = () =>
  ({ task: 'a', buckets: ['calls'], costs: null, chargedBuckets: null, grantedMs: 0 }) as unknown as ClaimedJob

/** Jobs in hand whose outlet does nothing by itself. */
function stage(clock: Clock = systemClock) {
  const at = { freed: [] as string[], started: 0, isRetired: false, reports: {} as Reports }
  const outlet = {
    slots: 9,
    kinds: [],
    free: () => 9,
    start: (jobs: unknown[]) => void (at.started += jobs.length),
    abort() {},
    retire: () => void (at.isRetired = true),
  }
  const hand = new InHand(
    {
      outlet: (reports: Reports) => {
        at.reports = reports
        return outlet
      },
      finisher: { backlog: 0, registerJobs() {}, registerInherited() {}, end: async () => true },
      peer: {
        confirm: async () => ({ id: undefined, decisions: [] }),
        takePlaces: async () => 'taken',
        freePlaces: (grant: string) => void at.freed.push(grant),
      },
      stintRecorder: { beatFor: async () => {} },
      clock,
      claimer: () => '1',
    } as never,
    () => {},
  )
  return { at, hand }
}

it('a dispatcher holds the places in Redis of jobs that it takes over, until these have ended', async () => {
  const { at, hand } = stage()
  const [one, other] = [job(), job()]
  for (const each of [one, other]) at.reports.inherited(each, '7')
  hand.drop([other], new Error('cancelled'))
  await until(() => at.freed.length === 1, 'the place of the job that was given up meanwhile')
  void at.reports.ended(one, { kind: 'done', result: null, tookMs: 1 })
  expect(at.freed).toEqual(['taken', 'taken'])
})

it('a dispatcher releases those who execute jobs only when all that it has claimed is given out', async () => {
  const { at, hand } = stage()
  const nowMs = systemClock.monotonicMs()
  hand.take([{ ...job(), buckets: null, grantedMs: nowMs, notBeforeMs: nowMs + 20, decidedMs: nowMs }])
  hand.retire()
  expect([at.started, at.isRetired]).toEqual([0, false])
  await until(() => at.isRetired, 'they are released')
  expect(at.started).toBe(1)
})
