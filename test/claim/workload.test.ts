/**
 * A workload from an issue (graphile/worker#118): 3,000 messages a minute in all, 1,000 a minute for each
 * client, 6 a second for each sender number; 200 clients with 20 numbers each, of whom one has 90 % of the backlog.
 * Turns are by client, not by number. The store clock steps, so that a minute takes seconds.
 */
import { beforeAll, expect, it } from 'vitest'
import { z } from 'zod'
import { task } from '../../src/tasks/task.ts'
import { limit } from '../../src/limits/limit.ts'
import { second, worst } from '../limits/oracle.ts'
import { isLong } from '../long.ts'
import { claim, done, emptied, engines, ownClock } from './engine.ts'

const startMs = 1_800_000_000_000
const stepMs = 250
const clients = 200
const numbers = 20
/** Jobs of each client but the first, which has 9 jobs where all others together have one. */
const jobsEach = isLong ? 20 : 4
const message = task('message', {
  input: z.object({ client: z.string(), number: z.string() }),
  fair: 'client',
  limits: [
    limit('total', { rate: '3000/min' }),
    limit('client', { rate: '1000/min', by: 'client' }),
    limit('number', { rate: '6/s', by: 'number' }),
  ],
  run: () => undefined,
})

const at = emptied(engines[0])
let clock: Awaited<ReturnType<typeof ownClock>>
beforeAll(async () => void (clock = await ownClock(at.db, startMs)))

function* inputs() {
  const one = (client: number, i: number) => ({ client: `c${client}`, number: `c${client}.${i % numbers}` })
  for (let i = 0; i < 9 * jobsEach * (clients - 1); i++) yield one(0, i)
  for (let client = 1; client < clients; client++) for (let i = 0; i < jobsEach; i++) yield one(client, i)
}

it('a claim keeps all three limits, and delays no client beyond its turns, however many jobs one client has', async () => {
  await at.sluice.sendMany(message, inputs())
  const granted: { client: string; number: string; atUs: number }[] = []
  const others = () => granted.filter(({ client }) => client !== 'c0').length
  let claims = 0
  let claimMs = 0
  for (let ms = 0; others() < jobsEach * (clients - 1); ms += stepMs) {
    await clock.set(startMs + ms)
    for (let isOver = false; !isOver;) {
      const since = performance.now()
      const { jobs, again } = await claim(at.db, at.worker, ['message'], 500)
      claimMs += performance.now() - since
      claims++
      for (const { input } of jobs) granted.push({ ...(input as { client: string; number: string }), atUs: ms * 1_000 })
      await done(at.db, jobs)
      isOver = jobs.length === 0 && !again
    }
    expect(ms).toBeLessThan(120_000)
  }

  // A client's k-th job is among the first k rounds of turns. The last claim's quantum makes one more, and so do lanes
  // that the first claims had not read: a claim reads 1,000 new lanes at most, and the long form has 4,000.
  const more = isLong ? 2 : 1
  const turns = new Map<string, number>()
  for (const [i, { client }] of granted.entries()) {
    const k = (turns.get(client) ?? 0) + 1
    turns.set(client, k)
    if (client !== 'c0') expect(i).toBeLessThan((k + more) * clients)
  }
  // The large client got its turns and no more while others waited; the last claim gave it the rest. In the long form the
  // first claim, which had read the lanes of 50 clients, divided its room among those.
  const lastUs = granted.findLast(({ client }) => client !== 'c0')?.atUs ?? 0
  const early = granted.filter(({ client, atUs }) => client === 'c0' && atUs < lastUs)
  expect(early.length).toBeLessThanOrEqual(jobsEach + (isLong ? 8 : 2))

  const of = (key: string, pick: (one: (typeof granted)[number]) => string) =>
    worst(
      granted.filter((one) => pick(one) === key).map(({ atUs }) => [atUs, 1] as const),
      key.includes('.') ? second : 60 * second,
    )
  expect(of('all', () => 'all')).toBeLessThanOrEqual(3_000)
  expect(of('c0', ({ client }) => client)).toBeLessThanOrEqual(1_000)
  expect(of('c0.0', ({ number }) => number)).toBeLessThanOrEqual(6)
  const proof = await at.sluice.verify()
  expect(proof).toMatchObject({ isProved: true, exceeded: [], missing: [] })
  expect(proof.rules.map(({ guarantee, rate, exceeded }) => `${guarantee} ${rate}: ${exceeded} exceeded`)).toEqual([
    'safe rate 1000/min: 0 exceeded',
    'safe rate 6/s: 0 exceeded',
    'safe rate 3000/min: 0 exceeded',
  ])
  if (isLong)
    console.log(`${granted.length} jobs by ${claims} claims, ${(claimMs / granted.length).toFixed(2)} ms a job`)
})
