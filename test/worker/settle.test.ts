/** Handlers settle their real usage; further requests declare their costs. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import type { Context } from '../../src/tasks/context.ts'
import { task } from '../../src/tasks/task.ts'
import { limit } from '../../src/limits/limit.ts'
import { testSluice, type TestSluice } from '../../src/testing/index.ts'
import { mainEngines } from '../claim/engine.ts'
import { roomOf } from '../limits/engine.ts'

const input = z.object({ n: z.number() })
const rpm = limit('rpm', { rate: '60/min', burst: 60, transit: 0 })
const tpm = limit('tpm', { window: '30000/min', cost: 'n', transit: 0 })

describe.each(mainEngines)('settlement on $name', ({ store }) => {
  let t: TestSluice
  afterEach(() => t.close())
  const run = async (
    handler: (context: Context, n: number) => unknown,
    sent: readonly number[],
    limits = [rpm, tpm],
  ) => {
    const call = task('call', { input, limits, retry: { attempts: 1 }, run: ({ n }, context) => handler(context, n) })
    t = await testSluice({ tasks: [call], store: await store() })
    for (const n of sent) await call.send({ n })
    await t.drain()
    return call
  }
  /** Units used, by the newest row of each bucket. */
  const used = async () => {
    const rows = await t.sluice.db.query<{ name: string; debt: string[] }>(
      `select distinct on (b.name) b.name, case when b.name = 'tpm' then r.debt else r.debt end as debt
       from sluice.bucket b cross join lateral ${roomOf('array[b.id]')} r order by b.name`,
    )
    return Object.fromEntries(rows.map(({ name, debt }) => [name, Number(debt[0])]))
  }

  it('refunds when less was used, and charges a debt when more was used, once for each limit', async () => {
    const settled: number[] = []
    await run(
      async ({ settle }, n) => {
        const actual = n === 1_000 ? 400 : 2_500
        await settle({ tpm: actual })
        await settle(7)
        settled.push(actual)
      },
      [1_000, 1_000, 2_000],
    )
    expect(settled.toSorted((a, b) => a - b)).toEqual([400, 400, 2_500])
    expect(await used()).toMatchObject({ tpm: 3_300 })
  })

  it('charges a single unit beyond the grant', async () => {
    await run(({ settle }, n) => settle({ tpm: n + 1 }), [1_000])
    expect(await used()).toMatchObject({ tpm: 1_001 })
  })

  it('with a debt beyond the room keeps other jobs waiting until it is gone', async () => {
    const call = await run(({ settle }) => settle({ tpm: 45_000 }), [1_000])
    await call.send({ n: 1 })
    expect(await t.drain()).toBe(0)
    await t.clock.advance('62s')
    expect(await t.drain()).toBe(1)
  })

  it('refunds in full at once for a limit whose vendor does', async () => {
    const points = limit('points', { rate: '50/s', burst: 1_000, cost: 'n', refund: 'full', transit: 0 })
    const actual = new Map([
      [252, 12],
      [900, 1_200],
    ])
    const settle = (context: Context, n: number) => context.settle(actual.get(n) ?? n)
    const call = await run(settle, [252], [points])
    await call.send({ n: 900 })
    await t.drain()
    await call.send({ n: 100 })
    expect(await t.drain()).toBe(0)
    await t.clock.advance(6_239)
    expect(await t.drain()).toBe(0)
    await t.clock.advance(1)
    expect(await t.drain()).toBe(1)
  })

  it('is no reason to fail the job when it is invalid: that is logged, and the units stay charged', async () => {
    const wrong = [{ tmp: 1 }, { tpm: -1 }, 0.5, NaN, Infinity, 2 ** 31, '5', null, undefined]
    await run(
      async ({ settle }) => {
        for (const units of wrong) await settle(units as number)
        await settle({ tmp: 3, rpm: 0 })
      },
      [1_000],
    )
    const [line] = await t.sluice.jobs.list({ state: 'done' })
    const job = await t.sluice.jobs.get(line?.id ?? '')
    expect(job).toMatchObject({ state: 'done', log: { omitted: 0 } })
    const lines = job?.log.lines ?? []
    expect(lines).toHaveLength(wrong.length + 1)
    expect(new Set(lines.map(({ level }) => level))).toEqual(new Set(['error']))
    expect(lines[0]?.message).toBe('the units stay charged, because the task has no limit "tmp"; it has: rpm, tpm')
    expect(await used()).toMatchObject({ tpm: 1_000, rpm: 0 })
  })

  it('is refused when the job is gone, and no other attempt could avoid that', async () => {
    const said: unknown[] = []
    await run(
      async ({ settle, job }) => {
        await t.sluice.jobs.cancel(job.id)
        said.push(await settle({ tpm: 0 }).catch((error: unknown) => error))
      },
      [1_000],
    )
    expect(said).toEqual([expect.objectContaining({ code: 'SLUICE_JOB_LOST', retryable: false })])
    expect(await used()).toMatchObject({ tpm: 1_000 })
  })

  it('includes further requests, which cost as much as the job, or what they declare', async () => {
    const site = createServer((_, response) => response.end('ok'))
    await new Promise<void>((resolve) => site.listen(0, '127.0.0.1', resolve))
    const url = `http://127.0.0.1:${(site.address() as AddressInfo).port}`
    const seen: number[] = []
    try {
      await run(
        async (context) => {
          await context.fetch(url)
          await context.fetch(url)
          seen.push((await used())['tpm'] ?? 0)
          await context.fetch(url, { cost: { tpm: 300, rpm: 0 } })
          seen.push((await used())['tpm'] ?? 0)
          await context.settle({ tpm: 500 })
        },
        [1_000],
      )
      expect(seen).toEqual([2_000, 2_300])
      expect(await used()).toMatchObject({ tpm: 500 })
    } finally {
      site.closeAllConnections()
      site.close()
    }
  })

  it('is preceded by a check, so that a send with an impossible or invalid cost is refused', async () => {
    const call = await run(() => undefined, [])
    const code = (asked: Promise<unknown>) => asked.then(String, (error: { code: string }) => error.code)
    expect(await code(call.send({ n: 30_001 }))).toBe('SLUICE_COST_ABOVE_CAPACITY')
    expect(await code(call.send({ n: 1.5 }))).toBe('SLUICE_BAD_COST')
    expect(await code(call.send({ n: -1 }))).toBe('SLUICE_BAD_COST')
    expect(await code(call.send({ n: 2 ** 31 }))).toBe('SLUICE_BAD_COST')
    expect(await t.sluice.jobs.status()).toMatchObject({ waiting: 0 })
  })

  it('shows in `why` what a job needs and what is free', async () => {
    const call = await run(() => undefined, [25_000])
    await call.send({ n: 6_000 })
    const id = await call.send({ n: 1_000 })
    await t.drain()
    const why = await t.sluice.why(id)
    expect(why?.reasons.find(({ kind }) => kind === 'limit')).toMatchObject({
      limit: 'tpm',
      text: 'tpm (30000/min) has 5000 free, and the job needs 1000, after 6000 for 1 job ahead',
    })
    const waitMs = (why?.notBefore?.getTime() ?? 0) - (await t.clock.now()).getTime()
    expect(waitMs).toBeGreaterThan(59_000)
    expect(waitMs).toBeLessThan(62_000)
  })
})
