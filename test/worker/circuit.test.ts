/** What a vendor's failures do: that no job fails while it is down, who waits, who does not, and how all goes on. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { check, limit, task } from '../../src/index.ts'
import type { Limit } from '../../src/limits/limit.ts'
import type { Context } from '../../src/tasks/task.ts'
import { emptied, mainEngines } from '../claim/engine.ts'
import { isLong } from '../long.ts'
import { until } from '../until.ts'

const input = z.object({ account: z.string(), n: z.number() })
type Input = z.infer<typeof input>
const by = ({ account }: Input) => account
const crm = limit('circuit.crm', { rate: '1000/s', by })
const total = limit('circuit.total', { rate: '100/s' })

/** The vendor: what it answers to whom (0: it resets the connection), and what arrived when. */
const vendor = {
  answers: (_account: string): number => 200,
  arrivals: [] as { account: string; atMs: number; status: number }[],
}
const server = createServer((request, response) => {
  const account = (request.url ?? '').slice(1)
  const status = vendor.answers(account)
  vendor.arrivals.push({ account, atMs: performance.now(), status })
  if (status === 0) request.socket.resetAndDestroy()
  else response.writeHead(status).end()
})
let origin = ''
beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
})
afterAll(() => void server.close())

describe.each(mainEngines)('a vendor that fails, on $name', (engine) => {
  const at = emptied(engine)
  afterEach(() => {
    vendor.answers = () => 200
    vendor.arrivals = []
  })
  const held = async () => {
    const rows = await at.db.query<{ bucket: string; cause: string }>(
      `select b.name || ':' || b.key as bucket, r.cause from sluice.refusal r join sluice.bucket b on b.id = r.bucket
       order by 1`,
    )
    return rows.map(({ bucket, cause }) => `${bucket} ${cause}`)
  }
  const byFetch = async (account: string, context: Context) => check(await context.fetch(`${origin}/${account}`))
  const named = (
    name: string,
    limits: readonly Limit<Input>[],
    run: (account: string, context: Context) => Promise<unknown> = byFetch,
    retry: object = { base: 1, max: 1 },
  ) =>
    task(name, {
      input,
      limits,
      retry,
      allowPrivate: [new URL(origin).host],
      run: ({ account }, context) => run(account, context),
    })
  const jobsOf = async (ids: readonly string[]) => Promise.all(ids.map((id) => at.sluice.jobs.get(id)))
  const arrived = (status: number) => vendor.arrivals.filter((one) => one.status === status)

  const downMs = isLong ? 60_000 : 7_000
  it.each([
    ['is down', 503],
    ['resets connections', 0],
    ['refuses everything', 429],
  ])(
    '%s: no job fails, only trials arrive, and the full rate is back within 5 s',
    { timeout: 120_000 },
    async (_, status) => {
      const call = named('circuit.down', [crm, total])
      const ids: string[] = []
      let n = 0
      const send = async (count: number) => {
        const rows = Array.from({ length: count }, () => ({ account: `a${n % 3}`, n: n++ }))
        for (const row of rows) ids.push(await at.sluice.send(call, row))
      }
      await send(50)
      const worker = await at.sluice.work([call])
      try {
        await until(() => arrived(200).length === 50, 'all goes well')
        vendor.answers = () => status
        const fromMs = performance.now()
        await send(300)
        await until(() => performance.now() - fromMs > downMs, 'the vendor is down for a while', downMs + 5_000)
        vendor.answers = () => 200
        const backMs = performance.now()
        await until(() => arrived(200).length >= 150, 'it is back', 20_000)
        const first = arrived(200).slice(50)
        // The hundredth call of a rate of 100/s, some 79 of which the guarantee leaves.
        expect(first[99]?.atMs ?? Infinity).toBeLessThan(backMs + 5_000 + 1_000 / 0.79)
        await until(async () => (await jobsOf(ids)).every((job) => job?.state === 'done'), 'every job is done', 30_000)
      } finally {
        await worker.stop()
      }
      const jobs = await jobsOf(ids)
      expect(jobs.filter((job) => (job?.throttled ?? 0) > 0).length).toBeGreaterThan(0)
      const bad = arrived(status)
      // What was in hand when it began; since then one at a time of each key, or of all together.
      const begunMs = (bad[0]?.atMs ?? 0) + 1_500
      const trials = bad.filter(({ atMs }) => atMs > begunMs)
      expect(trials.length).toBeLessThanOrEqual((3 * downMs) / 1_000)
      expect(await held()).toEqual([])
    },
  )

  it('rejects the credential of one of 50 accounts: the others lose nothing, its jobs wait', async () => {
    const call = named('circuit.credential', [crm, total])
    vendor.answers = (account) => (account === 'a0' ? 401 : 200)
    const ids: string[] = []
    for (let n = 0; n < 500; n++) ids.push(await at.sluice.send(call, { account: `a${n % 50}`, n }))
    const worker = await at.sluice.work([call])
    try {
      const others = ids.filter((_, n) => n % 50 > 0)
      await until(
        async () => (await jobsOf(others)).every((job) => job?.state === 'done'),
        'the others are done',
        60_000,
      )
      expect((await jobsOf(others)).every((job) => job?.attempt === 1)).toBe(true)
      await until(async () => (await held()).length === 1, 'its key is held')
      expect(await held()).toEqual(['circuit.crm:a0 credential'])
      const own = await jobsOf(ids.filter((_, n) => n % 50 === 0))
      // What `check` makes of a 401 is final: that befell the first two.
      expect(own.filter((job) => job?.state === 'failed').length).toBe(2)
      expect(JSON.stringify((await at.sluice.why(own.at(-1)?.id ?? ''))?.reasons)).toMatch(/rejects the credential/)
      vendor.answers = () => 200
      expect(await at.sluice.limits.reset(crm.name, { key: 'a0' })).toBe(1)
      await until(
        async () => (await jobsOf(ids)).every((job) => job?.state !== 'waiting' && job?.finishedAt),
        'all end',
      )
      expect((await jobsOf(ids)).filter((job) => job?.state === 'failed').length).toBe(2)
    } finally {
      await worker.stop()
    }
  })

  it.each<[string, Error]>([
    ['the status of an SDK', Object.assign(new Error('Service Unavailable'), { status: 503 })],
    ['fetch of the runtime', new TypeError('fetch failed')],
    ['axios', Object.assign(new Error('timeout of 1000ms exceeded'), { isAxiosError: true, code: 'ECONNABORTED' })],
  ])('is known to be down by the errors of %s', async (_, error) => {
    const own = limit('circuit.other', { rate: '1000/s' })
    const call = named('circuit.sdk', [own], () => Promise.reject(error))
    const ids = [await at.sluice.send(call, { account: 'a', n: 0 }), await at.sluice.send(call, { account: 'a', n: 1 })]
    const worker = await at.sluice.work([call])
    await until(async () => (await held()).length === 1, 'it is held')
    await worker.stop()
    expect(await held()).toEqual(['circuit.other: down'])
    const jobs = await jobsOf(ids)
    expect(jobs.reduce((sum, job) => sum + (job?.failed ?? 0), 0)).toBe(4)
  })

  it('is known to be down when it does not answer before the time-out of the attempts', async () => {
    const own = limit('circuit.slow', { concurrency: 10, circuit: 2 })
    const silent = createServer(() => {})
    await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve))
    const { port } = silent.address() as AddressInfo
    const call = task('circuit.slow', {
      input,
      limits: [own],
      timeout: 1_500,
      allowPrivate: [`127.0.0.1:${port}`],
      run: (_, context) => context.fetch(`http://127.0.0.1:${port}/`),
    })
    for (let n = 0; n < 2; n++) await at.sluice.send(call, { account: 'a', n })
    const worker = await at.sluice.work([call])
    await until(async () => (await held()).length === 1, 'it is held')
    await worker.stop()
    silent.closeAllConnections()
    silent.close()
    expect(await held()).toEqual(['circuit.slow: down'])
  })

  it('holds nothing for one unlucky job, for failures between successes, or if the circuit is off', async () => {
    const off = limit('circuit.off', { rate: '1000/s', circuit: false })
    const mixed = limit('circuit.mixed', { concurrency: 1 })
    let served = 0
    const tasks = [
      named('circuit.lone', [crm], byFetch, { attempts: 8, base: 1, max: 1 }),
      named('circuit.off', [off], byFetch, { attempts: 4, base: 1, max: 1 }),
      named('circuit.mixed', [mixed], async (account) => {
        if (served++ % 3 > 0) throw Object.assign(new Error(account), { status: 500 })
      }),
    ] as const
    vendor.answers = () => 500
    const ids = [await at.sluice.send(tasks[0], { account: 'a', n: 0 })]
    for (let n = 0; n < 4; n++) ids.push(await at.sluice.send(tasks[1], { account: 'a', n }))
    for (let n = 0; n < 20; n++) ids.push(await at.sluice.send(tasks[2], { account: 'a', n }))
    const worker = await at.sluice.work(tasks)
    await until(async () => (await jobsOf(ids)).every((job) => job?.finishedAt), 'all end', 60_000)
    await worker.stop()
    expect(await held()).toEqual([])
    expect((await jobsOf(ids)).every((job) => job?.throttled === 0)).toBe(true)
  })
})
