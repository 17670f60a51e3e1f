/** What a vendor's failures do: that no job fails while it is down, who waits, who does not, and how all goes on. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { check, limit, task } from '../../src/index.ts'
import type { Db } from '../../src/db/db.ts'
import type { Limit } from '../../src/limits/limit.ts'
import { useSluice } from '../../src/default-sluice.ts'
import type { Context } from '../../src/tasks/context.ts'
import { emptied, mainEngines, openOn } from '../claim/engine.ts'
import { isLong } from '../long.ts'
import { until } from '../until.ts'

const input = z.object({ account: z.string(), n: z.number() })
type Input = z.infer<typeof input>
const by = ({ account }: Input) => account
const crm = limit('circuit.crm', { rate: '1000/s', by, circuit: true })
const total = limit('circuit.total', { rate: '100/s', circuit: true })

/** Starts a vendor: what it answers to whom (0: it resets the connection), and what arrived when. */
async function openVendor() {
  const vendor = {
    answers: (_account: string): number => 200,
    arrivals: [] as { account: string; atMs: number; status: number }[],
    origin: '',
    arrived: (status: number) => vendor.arrivals.filter((one) => one.status === status),
    close: () => void server.close(),
  }
  const server = createServer((request, response) => {
    const account = (request.url ?? '').slice(1)
    const status = vendor.answers(account)
    vendor.arrivals.push({ account, atMs: performance.now(), status })
    if (status === 0) request.socket.resetAndDestroy()
    else response.writeHead(status, { connection: 'close' }).end()
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  vendor.origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return vendor
}
type Vendor = Awaited<ReturnType<typeof openVendor>>

/** The buckets that are held, each with its cause. */
async function heldOn(db: Db): Promise<string[]> {
  const rows = await db.query<{ bucket: string; cause: string }>(
    `select b.name || ':' || b.key as bucket, r.cause from sluice.refusal r join sluice.bucket b on b.id = r.bucket
     order by 1`,
  )
  return rows.map(({ bucket, cause }) => `${bucket} ${cause}`)
}

/** How many of these jobs ended, and how; each once. */
async function endedOn(db: Db, ids: readonly string[]) {
  const [row] = await db.query<{ done: number; failed: number; again: number }>(
    `select (select count(*)::integer from sluice.done where id = any ($1)) as done,
            (select count(*)::integer from sluice.failed where id = any ($1)) as failed,
            (select count(*)::integer from sluice.done where id = any ($1) and attempt > 1) as again`,
    [ids],
  )
  return row ?? { done: 0, failed: 0, again: 0 }
}

const byFetch = (vendor: Vendor) => async (account: string, context: Context) =>
  check(await context.fetch(`${vendor.origin}/${account}`))

/** A task that calls this vendor. */
const named = (
  vendor: Vendor,
  name: string,
  limits: readonly Limit<Input>[],
  run: (account: string, context: Context) => Promise<unknown> = byFetch(vendor),
  retry: object = { base: 1, max: 1 },
) =>
  task(name, {
    input,
    limits,
    retry,
    allowPrivate: [new URL(vendor.origin).host],
    run: ({ account }, context) => run(account, context),
  })

// The long form measures how soon all goes on, so that its tests run one after the other.
describe.each(mainEngines)('a vendor that fails for a while, on $name', { concurrent: !isLong }, (engine) => {
  const downMs = isLong ? 60_000 : 7_000
  it.for([
    ['is down', 503],
    ['resets connections', 0],
    ['refuses everything', 429],
  ] as const)(
    '%s: no job fails, only trials arrive, and the full rate is back within 5 s',
    { timeout: 180_000 },
    async ([, status], { onTestFinished }) => {
      const vendor = await openVendor()
      onTestFinished(vendor.close)
      const sluice = await openOn(engine)
      onTestFinished(() => sluice.close())
      const held = () => heldOn(sluice.db)
      const call = named(vendor, 'circuit.down', [crm, total])
      const ids: string[] = []
      let n = 0
      const send = async (count: number) => {
        const rows = Array.from({ length: count }, () => ({ account: `a${n % 3}`, n: n++ }))
        ids.push(...(await Promise.all(rows.map((row) => sluice.send(call, row)))))
      }
      await send(50)
      const worker = await sluice.work([call])
      try {
        await until(() => vendor.arrived(200).length === 50, 'all goes well')
        vendor.answers = () => status
        const fromMs = performance.now()
        await send(300)
        await until(() => performance.now() - fromMs > downMs, 'the vendor is down for a while', downMs + 5_000)
        vendor.answers = () => 200
        const backMs = performance.now()
        await until(() => vendor.arrived(200).length >= 150, 'it is back', 50_000)
        const first = vendor.arrived(200).slice(50)
        // The hundredth call of a rate of 100/s, some 79 of which the guarantee leaves.
        if (isLong) expect(first[99]?.atMs ?? Infinity).toBeLessThan(backMs + 5_000 + 1_000 / 0.79)
        // How soon that is depends on the longest pause between two trials, and on nothing that is held afterwards.
        const [pause] = await sluice.db.query<{ ms: number }>(
          'select (max(hold - at) / 1000)::integer as ms from sluice.ledger where hold > at',
        )
        expect(pause?.ms).toBeLessThanOrEqual(5_000)
        expect(await held()).toEqual([])
        await until(async () => (await endedOn(sluice.db, ids)).done === ids.length, 'every job is done', 30_000)
      } finally {
        await worker.stop()
      }
      const jobs = await Promise.all(ids.map((id) => sluice.jobs.get(id)))
      expect(jobs.filter((job) => (job?.throttled ?? 0) > 0).length).toBeGreaterThan(0)
      const bad = vendor.arrived(status)
      // What was in hand when it began; since then one at a time of each key, or of all together.
      const begunMs = (bad[0]?.atMs ?? 0) + 1_500
      const trials = bad.filter(({ atMs }) => atMs > begunMs)
      expect(trials.length).toBeLessThanOrEqual((3 * downMs) / 1_000)
      expect(await held()).toEqual([])
    },
  )
})

describe.each(mainEngines)('a vendor that fails, on $name', (engine) => {
  const at = emptied(engine)
  let vendor: Vendor
  beforeAll(async () => void (vendor = await openVendor()))
  afterAll(() => vendor.close())
  afterEach(() => {
    vendor.answers = () => 200
    vendor.arrivals = []
  })
  const held = () => heldOn(at.db)
  const ended = (ids: readonly string[]) => endedOn(at.db, ids)
  const jobsOf = async (ids: readonly string[]) => Promise.all(ids.map((id) => at.sluice.jobs.get(id)))
  it('rejects the credential of one of 50 accounts: the others lose nothing, its jobs wait', async () => {
    const call = named(vendor, 'circuit.credential', [crm, total])
    vendor.answers = (account) => (account === 'a0' ? 401 : 200)
    const rows = Array.from({ length: 500 }, (_, n) => ({ account: `a${n % 50}`, n }))
    const ids = await Promise.all(rows.map((row) => at.sluice.send(call, row)))
    const worker = await at.sluice.work([call])
    try {
      const others = ids.filter((_, n) => n % 50 > 0)
      await until(async () => (await ended(others)).done === others.length, 'the others are done', 60_000)
      expect((await ended(others)).again).toBe(0)
      await until(async () => (await held()).length === 1, 'its key is held')
      expect(await held()).toEqual(['circuit.crm:a0 credential'])
      const own = await jobsOf(ids.filter((_, n) => n % 50 === 0))
      // What `check` makes of a 401 is final: that befell the first two.
      expect(own.filter((job) => job?.state === 'failed').length).toBe(2)
      expect(JSON.stringify((await at.sluice.why(own.at(-1)?.id ?? ''))?.reasons)).toMatch(/rejects the credential/)
      vendor.answers = () => 200
      expect(await at.sluice.limits.reset(crm.name, { key: 'a0' })).toBe(1)
      await until(async () => (await ended(ids)).done === 498, 'all others end')
      expect((await ended(ids)).failed).toBe(2)
    } finally {
      await worker.stop()
    }
  })

  it.each<[string, Error]>([
    ['the status of an SDK', Object.assign(new Error('Service Unavailable'), { status: 503 })],
    ['fetch of the runtime', new TypeError('fetch failed')],
    ['axios', Object.assign(new Error('timeout of 1000ms exceeded'), { isAxiosError: true, code: 'ECONNABORTED' })],
  ])('is known to be down by the errors of %s', async (_, error) => {
    const own = limit('circuit.other', { rate: '1000/s', circuit: true })
    const call = named(vendor, 'circuit.sdk', [own], () => Promise.reject(error))
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

  it('is known to be down beside a limit of other keys that has no circuit', async () => {
    const all = limit('circuit.all', { rate: '1000/s', circuit: true })
    const each = limit('circuit.each', { rate: '1000/s', by: ({ account }: Input) => account })
    const call = named(vendor, 'circuit.beside', [all, each])
    vendor.answers = () => 500
    for (let n = 0; n < 10; n++) await at.sluice.send(call, { account: 'k', n })
    const worker = await at.sluice.work([call])
    await until(async () => (await held()).length > 0, 'it is held')
    expect(await held()).toEqual(['circuit.all: down'])
    vendor.answers = () => 200
    await until(async () => (await held()).length === 0, 'it is served')
    await worker.stop()
  })

  it('is known to be down by jobs of many keys, each of which has only one', async () => {
    const call = named(vendor, 'circuit.keys', [crm])
    vendor.answers = () => 500
    for (let n = 0; n < 10; n++) await at.sluice.send(call, { account: `k${n}`, n })
    const worker = await at.sluice.work([call])
    await until(async () => (await held()).length === 10, 'all keys are held')
    vendor.answers = () => 200
    await until(async () => (await held()).length === 0, 'all are served')
    await worker.stop()
  })

  it('is tried by takes, which count each for itself, and accepts by the answer to the host that failed', async () => {
    const own = limit('circuit.takes', { rate: '1000/s', circuit: 3 })
    const allowed = process.env['SLUICE_ALLOW_PRIVATE']
    process.env['SLUICE_ALLOW_PRIVATE'] = '127.0.0.1'
    useSluice(at.sluice)
    try {
      vendor.answers = () => 502
      const status = async (path: string) => (await own.fetch(`${vendor.origin}/${path}`)).status
      for (const left of [[], [], ['circuit.takes: down']]) {
        expect(await status('a')).toBe(502)
        expect(await held()).toEqual(left)
      }
      // Another host, which answers.
      const [row] = await at.db.query<{ host: string }>('select host from sluice.refusal')
      expect(row?.host).toBe(new URL(vendor.origin).host)
      vendor.answers = () => 200
      expect((await own.fetch(`${vendor.origin.replace('127.0.0.1', 'localhost')}/a`)).status).toBe(200)
      expect(await held()).toEqual(['circuit.takes: down'])
      expect(await status('a')).toBe(200)
      await until(async () => (await held()).length === 0, 'it accepts again')
      vendor.answers = () => 502
      await status('a')
      await status('a')
      expect(await held()).toEqual([])
      await own.observe(new Response(null, { status: 503 }))
      expect(await held()).toEqual(['circuit.takes: down'])
      vendor.answers = () => 200
      await status('a')
      await until(async () => (await held()).length === 0, 'it accepts again')
    } finally {
      process.env['SLUICE_ALLOW_PRIVATE'] = allowed
      useSluice(undefined)
    }
  })

  it('rejects a credential by what a function of the user reads', async () => {
    const answers = ({ status }: { status: number }) =>
      status === 403 ? { credential: 'rejected' as const } : undefined
    const plain = limit('circuit.plain', { rate: '1000/s', circuit: true })
    const told = limit('circuit.told', { rate: '1000/s', vendor: { answers }, circuit: true })
    vendor.answers = () => 403
    const tasks = [named(vendor, 'circuit.plain', [plain]), named(vendor, 'circuit.told', [told])] as const
    const ids: string[] = []
    for (const one of tasks) for (let n = 0; n < 6; n++) ids.push(await at.sluice.send(one, { account: 'a', n }))
    const worker = await at.sluice.work(tasks)
    await until(async () => (await jobsOf(ids.slice(0, 6))).every((job) => job?.state === 'failed'), 'those fail')
    await until(async () => (await held()).length > 0, 'it is held')
    await worker.stop()
    expect(await held()).toEqual(['circuit.told: credential'])
  })

  it('holds nothing for one unlucky job, for failures between successes, or if the circuit is off', async () => {
    const off = limit('circuit.off', { rate: '1000/s', circuit: false })
    const mixed = limit('circuit.mixed', { concurrency: 1, circuit: true })
    let served = 0
    const tasks = [
      named(vendor, 'circuit.lone', [crm], byFetch(vendor), { attempts: 8, base: 1, max: 1 }),
      named(vendor, 'circuit.off', [off], byFetch(vendor), { attempts: 4, base: 1, max: 1 }),
      named(vendor, 'circuit.mixed', [mixed], async (account) => {
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
