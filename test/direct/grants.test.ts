/** Further grants of an attempt without a store, from a Redis that is made up. */
import { expect, it } from 'vitest'
import { type Clock, readMoment, systemClock } from '../../src/core/clock.ts'
import { unclaimedJob } from '../../src/claim/claimed-job.ts'
import { DirectGrantSource } from '../../src/direct/grants.ts'
import type { Answer } from '../../src/direct/limiter.ts'
import { limit } from '../../src/index.ts'

/** An attempt whose requests for further grants get these answers, in order, and then none any more. Its pauses take no time. */
function attempt(answers: readonly ('room' | 'denied' | 'away')[]) {
  let [nowMs, asked] = [1_000, 0]
  const clock: Clock = { ...systemClock, monotonicMs: () => nowMs, sleep: async (ms) => void (nowMs += ms) }
  const take = async (): Promise<Answer | undefined> => {
    const answer = answers[asked++] ?? 'away'
    if (answer === 'away') return undefined
    const granted = answer === 'room' ? 1 : 0
    const got = [{ granted, waitMs: granted === 1 ? 0 : 4_000, lacking: undefined, lifeMs: 500 }]
    return { id: `grant ${asked}`, requestedAt: readMoment(clock), got }
  }
  const names = {
    buckets: ['crm'],
    chargedBuckets: ['crm'],
    costs: [1, 1],
    grant: 'own',
    requestedAt: readMoment(clock),
  }
  const fresh = { attempt: 0, failed: 0, throttled: 0, crashes: 0, isDoubtful: false }
  const job = unclaimedJob(fresh, {
    ...names,
    id: 'job',
    task: 'task',
    queue: 'celery',
    grantedMs: nowMs,
    createdMs: 0,
    input: null,
  })
  const source = new DirectGrantSource({ take } as never, clock)
  const grants = source.grantsOf({ job, limits: [limit('crm', { rate: '10/s' })], grantMs: 500 })
  return { grants, asked: () => asked }
}

it('further grants are waited for through a short outage, however long the limit had no room before', async () => {
  const { grants, asked } = attempt(['denied', 'denied', 'denied', 'away', 'room'])
  expect(await grants.take(AbortSignal.any([]), () => {})).toMatchObject({ id: 'grant 5' })
  expect(asked()).toBe(5)
})

it('further grants are given up after five seconds without Redis', async () => {
  const { grants, asked } = attempt(['denied'])
  await expect(grants.take(AbortSignal.any([]), () => {})).rejects.toMatchObject({ code: 'SLUICE_REDIS_UNREACHABLE' })
  expect(asked()).toBeGreaterThan(20)
})
