/** Quotas by calendar on both engines, through claims and further requests, with a clock that only the test moves. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { sqlOn } from '../../src/db/store.ts'
import { defineLimit } from '../../src/claim/definitions/define.ts'
import { task } from '../../src/tasks/task.ts'
import { limit, type Limit } from '../../src/limits/limit.ts'
import type { Rule } from '../../src/limits/rule.ts'
import { testSluice, type TestSluice } from '../../src/testing/index.ts'
import { mainEngines } from './engine.ts'

const perMinute = limit('minute', { quota: '5/min', zone: 'Asia/Kathmandu' })
const perDay = limit('day', { quota: ['10/day', '12/week'], zone: 'America/Los_Angeles', by: 'account' })
let ran = 0
const of = (name: string, of: Limit<{ account: string }>) =>
  task(name, { input: z.object({ account: z.string() }), limits: [of], run: () => void ran++ })
const [minutely, daily] = [of('minutely', perMinute), of('daily', perDay)]

describe.each(mainEngines)('a quota on $name', (engine) => {
  let t: TestSluice
  beforeAll(async () => {
    const start = new Date('2026-10-31T12:00:30Z')
    t = await testSluice({ tasks: [minutely, daily], store: await engine.store(), start })
  })
  afterAll(() => t.close())
  const at = async (time: string) => {
    await t.clock.set(new Date(time))
    return t.drain()
  }
  const account = async (name: string, many: number) => {
    const ids = await Promise.all(Array.from({ length: many }, () => daily.send({ account: name })))
    return ids.at(-1)
  }

  it('starts its number of jobs in each minute, and counts those near the end in the next minute too', async () => {
    await Promise.all(Array.from({ length: 17 }, () => minutely.send({ account: 'a' })))
    expect(await t.drain()).toBe(5)
    expect(await at('2026-10-31T12:00:59.999Z')).toBe(0)
    expect(await at('2026-10-31T12:01:00.199Z')).toBe(0)
    expect(await at('2026-10-31T12:01:00.200Z')).toBe(5)
    // 200 ms before the end: in this one and in the next.
    expect(await at('2026-10-31T12:02:59.900Z')).toBe(5)
    expect(await at('2026-10-31T12:03:30Z')).toBe(0)
    expect(await at('2026-10-31T12:04:00.200Z')).toBe(2)
    expect(await t.drain()).toBe(0)
  })

  it('holds for a day of 25 hours once, and for a week from Monday, for each key', async () => {
    await t.clock.set(new Date('2026-11-01T07:30:00Z'))
    const last = await account('acme', 25)
    await account('other', 1)
    expect(await t.drain()).toBe(11)
    const why = await t.sluice.why(last ?? '')
    expect(why?.reasons.find(({ kind }) => kind === 'limit')).toMatchObject({ limit: 'day', key: 'acme' })
    expect(why?.notBefore?.getTime()).toBeGreaterThanOrEqual(Date.parse('2026-11-02T08:00:00.200Z'))
    expect(await at('2026-11-02T07:59:00Z')).toBe(0)
    // A new day, and a new week.
    expect(await at('2026-11-02T08:00:00.200Z')).toBe(10)
    expect(await at('2026-11-03T09:00:00Z')).toBe(2)
    expect(await at('2026-11-08T09:00:00Z')).toBe(0)
    expect(await at('2026-11-09T09:00:00Z')).toBe(3)
  })

  it('is refused when the store does not know its zone', async () => {
    const [rule] = perMinute.rules as [Rule]
    const quota = { unit: 'day', anchorUs: null, marginUs: 1_000, zone: 'Mars/Olympus' } as const
    const made = { ...perMinute, name: 'mars', rules: [{ ...rule, quota }] }
    await expect(defineLimit(sqlOn(t.sluice.db), made)).rejects.toMatchObject({ code: 'SLUICE_BAD_ZONE' })
  })
})
