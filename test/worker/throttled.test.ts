/** What a vendor's refusals do: whom they hold, that they are no failures, and how the vendor is tried again. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { check, limit, money, rateLimited, takes, task } from '../../src/index.ts'
import type { Db } from '../../src/db/db.ts'
import { useSluice } from '../../src/default-sluice.ts'
import type { Sluice } from '../../src/sluice.ts'
import type { Context } from '../../src/tasks/context.ts'
import { claim, emptied, type Engine, mainEngines, openOn, perTenant, quietTask } from '../claim/engine.ts'
import type { Owner } from '../fleet/children.ts'
import { until } from '../until.ts'
import { hold } from '../limits/engine.ts'

const input = z.object({ account: z.string(), n: z.number() })
const by = ({ account }: z.infer<typeof input>) => account
const crm = limit('throttled.crm', { rate: '1000/s', by })
const total = limit('throttled.total', { rate: '5000/s' })

/** Starts a vendor: which accounts it refuses, for how long, and what arrived when. */
async function openVendor() {
  const vendor = {
    refuses: (_account: string): boolean => false,
    retryAfter: undefined as string | undefined,
    /** What it answers to what it does not refuse. */
    status: 200,
    arrivals: [] as { account: string; atMs: number; status: number }[],
    origin: '',
    refusedSince: (at: number) => vendor.arrivals.slice(at).filter(({ status }) => status === 429),
    close: () => void server.close(),
  }
  const server = createServer((request, response) => {
    const account = (request.url ?? '').slice(1)
    const status = vendor.refuses(account) ? 429 : vendor.status
    vendor.arrivals.push({ account, atMs: performance.now(), status })
    response.writeHead(status, status === 429 && vendor.retryAfter ? { 'retry-after': vendor.retryAfter } : {}).end()
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  vendor.origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return vendor
}
type Vendor = Awaited<ReturnType<typeof openVendor>>

const heldOn = (db: Db) =>
  db.query<{ bucket: string }>(
    `select b.name || ':' || b.key as bucket from sluice.refusal r join sluice.bucket b on b.id = r.bucket order by 1`,
  )

type During = (ids: readonly string[]) => Promise<void>
type Run = (origin: string, context: Context, account: string) => Promise<unknown>
const byFetch: Run = async (url, context, account) => check(await context.fetch(`${url}/${account}`))

/** Runs jobs of these accounts, which call this vendor, to their end, and resolves to their records. */
async function workOn(
  sluice: Sluice,
  { origin }: Vendor,
  name: string,
  run: Run,
  accounts: readonly string[],
  during: During = async (ids) => {
    for (const id of ids) await until(async () => (await sluice.jobs.get(id))?.finishedAt !== null, 'every job ends')
  },
  retry: object = { attempts: 2, base: 1, max: 1 },
) {
  const call = task(name, {
    input,
    limits: [crm, total],
    retry,
    allowPrivate: [new URL(origin).host],
    run: ({ account }, context) => run(origin, context, account),
  })
  const ids: string[] = []
  for (const [n, account] of accounts.entries()) ids.push(await sluice.send(call, { account, n }))
  const worker = await sluice.work([call])
  try {
    await during(ids)
    return await Promise.all(ids.map((id) => sluice.jobs.get(id)))
  } finally {
    await worker.stop()
  }
}

/** A store and a vendor of one test's own, and what has its jobs run. */
async function openStage({ onTestFinished }: Owner, engine: Engine) {
  const [sluice, vendor] = [await openOn(engine), await openVendor()]
  onTestFinished(() => sluice.close())
  onTestFinished(vendor.close)
  const work = (name: string, run: Run, accounts: readonly string[], ...how: [During?, object?]) =>
    workOn(sluice, vendor, name, run, accounts, ...how)
  return { sluice, vendor, work }
}

describe.concurrent.each(mainEngines)('a vendor that refuses requests for a while, on $name', (engine) => {
  it('is tried by one request at a time until it accepts one, and then gets all that the limits allow', async (context) => {
    const { sluice, vendor, work } = await openStage(context, engine)
    vendor.retryAfter = undefined
    let isDown = true
    vendor.refuses = () => isDown
    const begun = vendor.arrivals.length
    const accounts = Array<string>(60).fill('a')
    const jobs = await work('throttled.trial', byFetch, accounts, async (ids) => {
      await until(() => vendor.refusedSince(begun).length >= 14, 'the vendor has refused for a while')
      isDown = false
      for (const id of ids) await until(async () => (await sluice.jobs.get(id))?.state === 'done', id)
    })
    expect(jobs.every((job) => job?.failed === 0 && job.state === 'done')).toBe(true)
    const refused = vendor.refusedSince(begun)
    // Those in hand when it began; since then one for each hold of a second, the span of the rate.
    const trials = refused.slice(10)
    for (const [i, { atMs }] of trials.entries())
      if (i > 0) expect(atMs - (trials[i - 1]?.atMs ?? 0)).toBeGreaterThan(900)
    expect(await heldOn(sluice.db)).toEqual([])
  })

  it('counts as an attempt, and not as a failure', async (context) => {
    const { vendor, work } = await openStage(context, engine)
    let left = 4
    vendor.retryAfter = '0'
    vendor.refuses = () => left-- > 0
    const [job] = await work('throttled.counts', byFetch, ['a'])
    expect(job).toMatchObject({ state: 'done', attempt: 5, failed: 0, throttled: 4 })
    expect(job?.attempts.map(({ outcome }) => outcome)).toEqual([...Array<string>(4).fill('throttled'), 'done'])
  })

  it('ends a job that was refused more often than its task allows', async (context) => {
    const { vendor, work } = await openStage(context, engine)
    vendor.retryAfter = '0'
    vendor.refuses = () => true
    const [job] = await work('throttled.ends', byFetch, ['a'], undefined, { maxThrottled: 2 })
    expect(job).toMatchObject({ state: 'failed', reason: 'exhausted', attempt: 3, throttled: 2 })
  })
})

describe.each(mainEngines)('a vendor that refuses requests, on $name', (engine) => {
  const at = emptied(engine)
  let vendor: Vendor
  beforeAll(async () => void (vendor = await openVendor()))
  afterAll(() => vendor.close())
  const held = () => heldOn(at.db)
  const work = (name: string, run: Run, accounts: readonly string[], ...how: [During?, object?]) =>
    workOn(at.sluice, vendor, name, run, accounts, ...how)

  it('holds the vendor’s limit, and not the budget of the customer', async () => {
    const budget = limit('throttled.budget', { quota: '5 USD/day', by, cost: () => money(0.01) })
    const paid = task('throttled.paid', {
      input,
      limits: [total, budget],
      allowPrivate: [new URL(vendor.origin).host],
      run: async ({ account }, { fetch }) => void (await check(await fetch(`${vendor.origin}/${account}`))),
    })
    vendor.refuses = () => true
    vendor.retryAfter = '60'
    await at.sluice.send(paid, { account: 'a', n: 0 })
    const worker = await at.sluice.work([paid])
    try {
      await until(async () => (await held()).length > 0, 'something is held')
      expect(await held()).toEqual([{ bucket: 'throttled.total:' }])
    } finally {
      vendor.refuses = () => false
      vendor.retryAfter = undefined
      await worker.stop()
    }
  })

  it('accepts again when a handler with a client of its own succeeds', async () => {
    let before: unknown
    const jobs = await work(
      'throttled.own',
      async (_origin, { attempt }) => {
        if (attempt === 1) throw rateLimited(100)
        before = await held()
      },
      ['own'],
    )
    expect(jobs).toMatchObject([{ state: 'done', attempt: 2 }])
    expect(before).toEqual([{ bucket: 'throttled.crm:own' }])
    await until(async () => (await held()).length === 0, 'nothing is refused any more')
  })

  it('refuses one of 50 accounts for an hour: the other 49 lose nothing', async () => {
    vendor.retryAfter = '3600'
    vendor.refuses = (account) => account === 'a'
    const others = Array.from({ length: 98 }, (_, n) => `b${n % 49}`)
    const done = async (ids: readonly string[]) => {
      const first = async () => Promise.all(ids.slice(0, 2).map((id) => at.sluice.jobs.get(id)))
      await until(async () => (await first()).some((job) => job?.throttled === 1), 'one of the account is refused')
      for (const id of ids.slice(2)) await until(async () => (await at.sluice.jobs.get(id))?.state === 'done', id)
    }
    const begun = vendor.arrivals.length
    const jobs = await work('throttled.narrow', byFetch, ['a', 'a', ...others], done)
    expect(await held()).toEqual([{ bucket: 'throttled.crm:a' }])
    expect(jobs.slice(2).filter((job) => job?.attempt !== 1 || job.throttled > 0)).toEqual([])
    expect(vendor.refusedSince(begun).length).toBeLessThanOrEqual(2)
    const why = await at.sluice.why(jobs[1]?.id ?? '')
    expect(JSON.stringify(why?.reasons)).toMatch(
      /the vendor refused .*\(?429 from 127\.0\.0\.1|the vendor refused attempt/,
    )
  })

  it('starts the job that it refused for an hour when an operator resets the limit', async () => {
    vendor.retryAfter = '3600'
    vendor.refuses = (account) => account === 'r'
    const [job] = await work('throttled.reset', byFetch, ['r'], async ([id = '']) => {
      await until(async () => (await at.sluice.jobs.get(id))?.state === 'scheduled', 'it is refused')
      vendor.refuses = () => false
      expect(await at.sluice.limits.reset(crm.name, { key: 'r' })).toBe(1)
      await until(async () => (await at.sluice.jobs.get(id))?.state === 'done', 'it is done')
    })
    expect(job).toMatchObject({ attempt: 2, throttled: 1 })
  })

  it.each<[string, (origin: string, context: Context, account: string) => Promise<unknown>]>([
    [
      'an SDK with status and headers',
      async () =>
        Promise.reject(Object.assign(new Error('Rate limit'), { status: 429, headers: { 'Retry-After': '3600' } })),
    ],
    [
      'a client with the response in its error',
      async () =>
        Promise.reject(
          Object.assign(new Error('429'), { response: { status: 429, headers: { 'retry-after': 3600 } } }),
        ),
    ],
    ['rateLimited with a pause in ms', async () => Promise.reject(rateLimited(3_600_000))],
    [
      'ctx.limits.refused, and then another error',
      async (_, context) => {
        await context.limits.refused({ retryAfterMs: 3_600_000 })
        throw new Error('as if')
      },
    ],
  ])('holds the key when the handler learns of it by %s', async (_, run) => {
    const name = `throttled.other${Math.random()}`
    await work(name, run, ['a'], () => until(async () => (await held()).length > 0, 'it is held'), {})
    expect(await held()).toEqual([{ bucket: 'throttled.crm:a' }])
    const [hold] = await at.db.query<{ s: number }>(
      'select (max(hold - at) / 1000000)::integer as s from sluice.ledger where hold > at',
    )
    expect(hold?.s).toBeGreaterThan(3_590)
  })

  it('holds a limit that the handler names', async () => {
    const run = (_: string, context: Context) => context.limits.refused({ limit: total.name, retryAfterMs: 3_600_000 })
    await work('throttled.named', run, ['a'])
    expect(await held()).toEqual([{ bucket: 'throttled.total:' }])
  })

  it('has accepted nothing when its server fails, even if the handler does not mind', async () => {
    let left = 1
    vendor.retryAfter = '1'
    vendor.refuses = () => left-- > 0
    vendor.status = 500
    try {
      const run: typeof byFetch = async (url, context, account) => {
        const response = await context.fetch(`${url}/${account}`)
        return response.status === 429 ? check(response) : response
      }
      const [job] = await work('throttled.fails', async (...args) => void (await run(...args)), ['a'])
      expect(job).toMatchObject({ state: 'done', throttled: 1 })
      expect(await held()).toEqual([{ bucket: 'throttled.crm:a' }])
    } finally {
      vendor.status = 200
    }
  })

  it('is held for an hour at most, and as if it had stated no time if that is no number', async () => {
    for (const [account, ms] of [
      ['a', 1e10],
      ['b', Number.NaN],
    ] as const)
      await work(
        `throttled.far.${account}`,
        async () => Promise.reject(rateLimited(ms)),
        [account],
        () => until(async () => (await held()).some(({ bucket }) => bucket.endsWith(account)), `${account} is held`),
        {},
      )
    const holds = await at.db.query<{ s: number }>(
      `select ((max(l.hold - l.at)) / 1000000)::integer as s from sluice.ledger l join sluice.refusal r using (bucket)
       group by l.bucket order by 1 desc`,
    )
    expect(holds).toEqual([{ s: 3_600 }, { s: 1 }])
  })

  it('is tried by a take whose answer another client gets, and accepts by what `observe` is given', async () => {
    useSluice(at.sluice)
    try {
      const init = { key: 'a' }
      const row = async () => (await at.db.query<{ n: number }>('select n from sluice.refusal'))[0]?.n
      // Several requests were under way together: that is one refusal.
      await Promise.all([crm.take(init), crm.take(init), crm.take(init)])
      for (let n = 0; n < 3; n++) expect(await crm.observe(new Response(null, { status: 429 }), init)).toBe(true)
      expect(await row()).toBe(1)
      // The answer to a request of before the refusal shows nothing.
      expect(await crm.observe(new Response(null, { status: 200 }), init)).toBe(false)
      expect(await row()).toBe(1)
      await crm.take(init)
      expect(await crm.observe(new Response(null, { status: 429 }), init)).toBe(true)
      expect(await row()).toBe(2)
      await crm.take(init)
      // Nor does the failure of a server, or of the network.
      await crm.observe(new Response(null, { status: 500 }), init)
      await crm.observe(new TypeError('fetch failed'), init)
      expect(await row()).toBe(2)
      expect(await crm.observe(new Response(null, { status: 200 }), init)).toBe(false)
      expect(await held()).toEqual([])
    } finally {
      useSluice(undefined)
    }
  })

  it('is tried by a claim of several lanes, which shows that it tries', async () => {
    const quiet = quietTask('throttled.lanes', [perTenant('throttled.tenants', '100/s')])
    const isOnTrial = async () => {
      for (const tenant of ['a', 'b']) await at.sluice.send(quiet, { tenant })
      const { jobs, isOnTrial: isTried } = await claim(at.db, at.worker, ['throttled.lanes'], 5)
      expect(jobs).toHaveLength(2)
      return isTried
    }
    expect(await isOnTrial()).toBe(false)
    await hold(at.db, ['throttled.tenants:a'], 0, 60_000_000)
    expect(await isOnTrial()).toBe(true)
  })

  it('is tried by takes in the same way', async () => {
    useSluice(at.sluice)
    vendor.retryAfter = '1'
    vendor.refuses = () => true
    const init = { key: 'a' }
    const agent = process.env['SLUICE_ALLOW_PRIVATE']
    process.env['SLUICE_ALLOW_PRIVATE'] = '127.0.0.1'
    try {
      const answer = await takes.fetch([crm, total], `${vendor.origin}/a`, { key: { [crm.name]: 'a' } })
      expect(answer.status).toBe(429)
      expect(await held()).toEqual([{ bucket: 'throttled.crm:a' }])
      vendor.refuses = () => false
      expect((await crm.fetch(`${vendor.origin}/a`, init)).status).toBe(200)
      await until(async () => (await held()).length === 0, 'the vendor accepts again')
      expect(await crm.observe(new Response(null, { status: 429, headers: { 'retry-after': '3600' } }), init)).toBe(
        true,
      )
      expect(await crm.observe(new Response(null, { status: 200 }), init)).toBe(false)
      expect(await held()).toEqual([{ bucket: 'throttled.crm:a' }])
    } finally {
      process.env['SLUICE_ALLOW_PRIVATE'] = agent
      useSluice(undefined)
    }
  })
})
