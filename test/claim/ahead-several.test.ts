/** Jobs that several limits without keys apply to are granted ahead of time, and none of their windows holds too much. */
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { newId } from '../../src/core/hash.ts'
import { limit, type LimitOptions } from '../../src/limits/limit.ts'
import { cases } from '../long.ts'
import { claim, count, emptied, enter, finish, mainEngines, ownClock, perTenant, quietTask } from './engine.ts'
import { copies } from '../rows.ts'

const startMs = Date.UTC(2026, 10, 26, 11, 59, 58)

/** Decides most of the time. */
const slowest: LimitOptions = { rate: '30/s' }
/** Often has as many units left as are granted ahead, and sometimes fewer. */
const anyOther: fc.Arbitrary<LimitOptions> = fc.constantFrom<LimitOptions>(
  { rate: '33/s' },
  { rate: '44/s' },
  { rate: '20/500ms' },
  { rate: '60/s', window: '10/250ms' },
  { rate: '120/3s', quota: '200/min' },
  { rate: '40/s', burst: 9 },
  { window: '8/200ms' },
  { window: '33/s' },
)
const anyStep = fc.record({
  us: fc.integer({ min: 0, max: 60_000 }),
  worker: fc.nat(2),
  want: fc.integer({ min: 1, max: 5 }),
  unused: fc.nat(4),
})

const at = emptied(mainEngines[0] ?? expect.fail())
let names = 0

it('a lane that its account holds back waits for the account, also if a total has fewer units left than are wanted', async () => {
  await at.db.query('drop table if exists sluice.test_clock')
  await ownClock(at.db, startMs)
  const held = quietTask('held', [limit('total', { rate: '20/min', burst: 5 }), perTenant('account', '1/h', 1)])
  const worker = await enter(at.db, ['held'], {}, 10)
  await at.sluice.send(held, { tenant: 'a' })
  const { jobs: first } = await claim(at.db, worker, ['held'], 10, newId(), { ahead: 10 })
  expect(first).toHaveLength(1)
  await finish(
    at.db,
    first.map((job) => ({ job, outcome: 'done' })),
  )
  await at.sluice.send(held, { tenant: 'a' })
  for (let i = 0; i < 3; i++) {
    const { jobs, wakeUs } = await claim(at.db, worker, ['held'], 10, newId(), { idle: true, ahead: 10 })
    expect(jobs).toEqual([])
    expect(wakeUs).toBeGreaterThan(1_000_000)
  }
})

it('several limits of a job each keep to their windows, whatever comes back', async () => {
  let ahead = 0
  await at.db.query('drop table if exists sluice.test_clock')
  const clock = await ownClock(at.db, startMs)
  let nowUs = startMs * 1_000
  const property = fc.asyncProperty(
    fc.array(anyOther, { minLength: 1, maxLength: 2 }),
    fc.array(anyStep, { minLength: 100, maxLength: 200 }),
    async (others, steps) => {
      const name = `t${++names}`
      const task = quietTask(
        name,
        [...others, slowest].map((each, i) => limit(`${name}-${i}`, each)),
      )
      await at.sluice.sendMany(task, copies(1_000))
      const workers = await Promise.all([0, 1, 2].map(() => enter(at.db, [name], {}, 10)))
      for (const { us, worker, want, unused } of steps) {
        await clock.set((nowUs += us) / 1_000)
        const { jobs, laterUs } = await claim(at.db, workers[worker] ?? '', [name], want, newId(), {
          idle: true,
          ahead: want,
        })
        ahead += laterUs.filter((later) => later > 0).length
        // Never more than half of a claim, which would end claims ahead.
        await finish(
          at.db,
          jobs.map((job, i) => ({ job, outcome: unused === 0 && i % 3 === 1 ? 'unused' : 'done' })),
        )
      }
      expect(await at.sluice.verify()).toMatchObject({ isProved: true, exceeded: [] })
    },
  )
  await fc.assert(property, { numRuns: cases(16), endOnFailure: true })
  expect(ahead).toBeGreaterThan(10)
  // All buckets count the units of a claim at its last instant.
  const apart = 'select claim from sluice.ledger where earlier is not null group by 1 having count(distinct at) > 1'
  expect(await at.db.query(apart)).toEqual([])
  expect(await count(at.db, 'sluice.ledger where units < 0 and claim is not null')).toBeGreaterThan(cases(16))
})
