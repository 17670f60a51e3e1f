/** Workers measure the margins of their limits. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, it } from 'vitest'
import { check, limit, type Limit, Sluice, task } from '../../src/index.ts'
import { systemClock } from '../../src/core/clock.ts'
import { storeOn } from '../../src/db/store.ts'
import { freshDatabase } from '../servers/database.ts'
import { startProxy } from '../servers/proxy.ts'
import { until } from '../until.ts'
import { makeWorker } from './made.ts'

async function lifeMs(sluice: Sluice, of: Limit): Promise<number> {
  const [row] = await sluice.db.query<{ ms: number }>(
    `select (grant_us / 1000)::int as ms from sluice.limit_def where name = $1 order by version desc limit 1`,
    [of.name],
  )
  return row?.ms ?? 0
}

it.concurrent('a grant lives longer where each claim takes longer than it lived, so that jobs begin', async ({
  onTestFinished,
}) => {
  const { url } = await freshDatabase()
  const proxy = await startProxy({ port: Number(new URL(url).port) })
  onTestFinished(() => proxy.close())
  const sluice = await Sluice.open({ store: proxy.url(url) })
  onTestFinished(() => sluice.close())
  const calls = limit('calls', { rate: '50/s' })
  let ran = 0
  const call = task('call', { limits: [calls], run: async () => void ran++ })
  await sluice.sendMany(call, Array(15).fill({}))
  proxy.delay(70)
  await sluice.work([call])
  await until(() => ran === 15, 'all jobs ran', 30_000)
  proxy.delay(0)
  expect(await lifeMs(sluice, calls)).toBeGreaterThan(140)
  const { isProved, rules } = await sluice.verify()
  expect(isProved).toBe(true)
  expect(rules.at(-1)?.windowMs).toBeGreaterThan(1_240)
})

it.concurrent('requests of ctx.fetch are measured; handlers that make none, and refusals of what is allowed, leave the way unknown', async ({
  onTestFinished,
}) => {
  let refusals = 0
  const server = createServer(({ url: path }, response) =>
    response.writeHead(path === '/refuses' && refusals++ === 0 ? 429 : 200).end(),
  )
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void server.close())
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const sluice = await Sluice.open({ store: (await freshDatabase()).url, allowPrivate: ['127.0.0.1'] })
  onTestFinished(() => sluice.close())
  const seen = limit('seen', { rate: '1000/s' })
  const unseen = limit('unseen', { rate: '1000/s' })
  const refused = limit('refused', { rate: '1000/s' })
  const tasks = [
    task('fetches', { limits: [seen], run: async (_, { fetch }) => void (await (await fetch(url)).text()) }),
    task('is-refused', {
      limits: [refused],
      run: async (_, { fetch }) => void (await check(await fetch(`${url}/refuses`))),
    }),
    task('does', { limits: [unseen], run: async () => {} }),
  ]
  for (const one of tasks) await sluice.sendMany(one, Array(120).fill({}))
  await sluice.work(tasks)
  const rows = () =>
    sluice.db.query<{ name: string; sound: boolean; answers: number }>(
      `select name, sound, answers::int as answers from sluice.measured where ages > 0 order by name`,
    )
  await until(async () => (await rows()).length === 3, 'all are reported', 20_000)
  expect(await rows()).toMatchObject([
    { name: 'refused', sound: false },
    { name: 'seen', sound: true },
    { name: 'unseen', sound: false, answers: 0 },
  ])
  expect((await rows())[1]?.answers).toBeGreaterThan(0)
})

it.concurrent('a request whose answer is slow is charged once more, as soon as the process knows how long answers take', async ({
  onTestFinished,
}) => {
  let isSlow = false
  const server = createServer((_, response) => void setTimeout(() => response.end(), isSlow ? 250 : 0))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void server.close())
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  // While an answer is awaited that is not slow, this clock stands: on a busy machine such answers vary, and the more they do, the
  // fewer count as slow.
  let standsMs: number | undefined
  const clock = { ...systemClock, monotonicMs: () => standsMs ?? systemClock.monotonicMs() }
  const sluice = await Sluice.open({ store: (await freshDatabase()).url, allowPrivate: ['127.0.0.1'], clock })
  onTestFinished(() => sluice.close())
  const calls = limit('calls', { rate: '100/s' })
  const call = task('call', {
    limits: [calls],
    async run(_, { fetch, settle }) {
      standsMs = isSlow ? undefined : clock.monotonicMs()
      const asking = fetch(url).finally(() => (standsMs = undefined))
      // Settled before the answer: what the request may count for is charged all the same.
      if (isSlow) await settle({ calls: 1 })
      await (await asking).text()
    },
  })
  const finished = (id: string) =>
    until(async () => (await sluice.jobs.get(id))?.state === 'done', 'the job is done', 30_000)
  const again = () => sluice.db.query(`select units::int as units from sluice.ledger where claim is null and units > 0`)
  await sluice.work([call])
  const measured = () => sluice.db.query(`select 1 from sluice.measured where name = 'calls' and answers > 0`)
  await until(
    async () => {
      await finished(await sluice.send(call, {}))
      return (await measured()).length > 0
    },
    'answers are reported',
    30_000,
  )
  isSlow = true
  const before = (await again()).length
  await finished(await sluice.send(call, {}))
  await until(async () => (await again()).length > before, 'it is charged once more')
  expect((await again()).at(-1)).toEqual({ units: 1 })
  expect((await sluice.verify()).isProved).toBe(true)
})

it.concurrent('what an outlet elsewhere does leaves the way unknown', async ({ onTestFinished }) => {
  const sluice = await Sluice.open({ store: (await freshDatabase()).url })
  onTestFinished(() => sluice.close())
  const far = task('far', { limits: [limit('far', { rate: '100/s' })], run: async () => {} })
  await sluice.define([far])
  const store = storeOn(sluice.db, { clock: systemClock })
  const worker = makeWorker({
    store,
    tasks: [far],
    outlet: () => ({ slots: 1, free: () => 1, kinds: [], start() {}, abort() {} }),
  })
  onTestFinished(() => worker.abort())
  await worker.start()
  const sound = () => sluice.db.query(`select sound from sluice.measured where name = 'far'`)
  await until(async () => JSON.stringify(await sound()) === '[{"sound":false}]', 'the way is in doubt', 20_000)
})
