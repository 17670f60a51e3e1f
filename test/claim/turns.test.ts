/** Fair turns through real claims, on a clock that stands still: 100 a minute among A 1,000, B 50 and C 50. */
import { beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { task } from '../../src/tasks/task.ts'
import { limit } from '../../src/limits/limit.ts'
import { claimAll, done, emptied, mainEngines, ownClock, tenantInput } from './engine.ts'
import { copies } from '../rows.ts'

const startMs = 1_800_000_000_000
/** A window and its margin, in 61 parts. */
const nextMs = 62_000
const parent = limit('parent', { window: '100/min' })
const own = limit('own', { window: '10/min', by: 'tenant' })
const fair = { input: z.object({ tenant: z.string() }), fair: 'tenant', run: () => undefined } as const
const plain = task('plain', { ...fair, limits: [parent] })
const heavy = task('heavy', { ...fair, limits: [parent], weight: 2 })
const limited = task('limited', { ...fair, limits: [parent, own] })
const tenants = ['A', 'B', 'C']

describe.each(mainEngines.map((engine, i) => ({ engine, want: [7, 500][i] ?? 1 })))(
  `on $engine.name, by claims of up to $want`,
  ({ engine, want }) => {
    const at = emptied(engine)
    let clock: Awaited<ReturnType<typeof ownClock>>
    beforeAll(async () => void (clock = await ownClock(at.db, startMs)))

    const inputs = (tenant: string) => Array.from({ length: tenant === 'A' ? 1_000 : 50 }, () => ({ tenant }))
    const send = async (ofA: typeof plain) => {
      for (const tenant of tenants) await at.sluice.sendMany(tenant === 'A' ? ofA : plain, inputs(tenant))
    }
    /** The jobs of each tenant in these minutes. */
    const minutes = async (count: number) => {
      const got: number[][] = []
      for (let minute = 0; minute < count; minute++) {
        await clock.set(startMs + minute * nextMs)
        const all: string[] = []
        for (let isOver = false; !isOver;) {
          const jobs = await claimAll(at.db, at.worker, ['plain', 'heavy', 'limited'], want)
          all.push(...jobs.map(({ input }) => (input as { tenant: string }).tenant))
          await done(at.db, jobs)
          isOver = jobs.length === 0
        }
        got.push(tenants.map((tenant) => all.filter((one) => one === tenant).length))
      }
      return got
    }

    it('equal tenants get 34/33/33, then 66/17/17', async () => {
      await send(plain)
      const [first = [], ...then] = await minutes(2)
      expect(first.toSorted((a, b) => a - b)).toEqual([33, 33, 34])
      const [, b = 0, c = 0] = first
      expect(then).toEqual([[b + c, 50 - b, 50 - c]])
    })

    it('tenants get 10/45/45, then 10/5/5, when A has a limit of 10 of its own', async () => {
      await send(limited)
      expect(await minutes(2)).toEqual([
        [10, 45, 45],
        [10, 5, 5],
      ])
    })

    it('tenants get 50/25/25, when A has weight 2', async () => {
      await send(heavy)
      expect(await minutes(1)).toEqual([[50, 25, 25]])
    })
  },
)

describe.each(mainEngines)('limits that jobs share, on $name', (engine) => {
  const at = emptied(engine)
  beforeAll(async () => void (await ownClock(at.db, startMs)))
  const ten = (name: string) => limit(name, { window: '10/min' })
  const of = (name: string, queue: string, shared: ReturnType<typeof ten>) =>
    task(name, { input: tenantInput, queue, limits: [shared], run: () => undefined })

  it('two tasks on two queues share one limit, two limits are separate, and exactly 10 of 50 tries for 10 succeed', async () => {
    const [shared, other] = [ten('shared'), ten('other')]
    const tasks = [of('one', 'left', shared), of('two', 'right', shared), of('three', 'right', other)]
    for (const each of tasks) await at.sluice.sendMany(each, copies(50))
    const got = new Map<string, number>()
    for (let tries = 0; tries < 50; tries++) {
      const name = tasks[tries % 3]?.name ?? ''
      const jobs = await claimAll(at.db, at.worker, [name], 1)
      got.set(name, (got.get(name) ?? 0) + jobs.length)
    }
    expect((got.get('one') ?? 0) + (got.get('two') ?? 0)).toBe(10)
    expect(got.get('three')).toBe(10)
    const { rules, isProved } = await at.sluice.verify()
    expect(isProved).toBe(true)
    expect(rules.filter(({ limit: name }) => ['shared', 'other'].includes(name))).toMatchObject([
      { guarantee: 'exact window', worst: 10, most: 10 },
      { guarantee: 'exact window', worst: 10, most: 10 },
    ])
  })
})
