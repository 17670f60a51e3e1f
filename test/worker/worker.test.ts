/** A worker and its store: connections, and outages. */
import { once } from 'node:events'
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, test, vi } from 'vitest'
import { z } from 'zod'
import { limit, type Log, Sluice, task } from '../../src/index.ts'
import { freshDatabase } from '../servers/database.ts'
import { startProxy } from '../servers/proxy.ts'
import { until } from '../until.ts'
import { beats, rescue } from '../fleet/engine.ts'
import { idleWorkers } from '../store/engine.ts'

test('handlers that hold all connections get the grants that they wait for, and their ends are recorded', async () => {
  const vendor = http.createServer((_, response) => response.end('ok')).listen(0, '127.0.0.1')
  await once(vendor, 'listening')
  const to = `http://127.0.0.1:${(vendor.address() as AddressInfo).port}/`
  const sluice = await Sluice.open({ store: (await freshDatabase()).url, connections: 2 })
  let [holding, ended] = [0, 0]
  const holds = task('holds', {
    input: z.object({}),
    limits: [limit('calls', { rate: '500/s' })],
    run: async (_, ctx) => {
      await sluice.transaction(async () => {
        holding++
        await until(() => holding >= 2)
        for (let call = 0; call < 2; call++) await (await ctx.fetch(to)).text()
      })
      ended++
    },
  })
  const ids = [await sluice.send(holds, {}), await sluice.send(holds, {})]
  await sluice.work([holds], { concurrency: 2 })
  await until(() => ended >= 2)
  for (const id of ids) expect(await sluice.waitFor(id)).toMatchObject({ state: 'done', failed: 0 })
  await sluice.close()
  vendor.close()
})

test('an idle worker logs when its store is away, and when it is back', async () => {
  const { url } = await freshDatabase()
  const proxy = await startProxy({ port: Number(new URL(url).port) })
  const [warn, error] = [vi.fn<Log['warn']>(), vi.fn<Log['error']>()]
  const sluice = await Sluice.open({ store: proxy.url(url), log: { debug() {}, info() {}, warn, error } })
  await sluice.work([task('quiet', { input: z.object({}), run: () => undefined })])
  await proxy.refuse()
  proxy.reset()
  await until(() => error.mock.calls.some(([text]) => text.startsWith('the database is unreachable')))
  const isBack = () => warn.mock.calls.some(([text]) => text.startsWith('the database answers again'))
  expect(isBack()).toBe(false)
  await proxy.pass()
  await until(isBack)
  await sluice.close()
  await proxy.close()
})

test('a stopping worker that only finishes its attempts is not notified', async () => {
  const sluice = await Sluice.open({ store: (await freshDatabase()).url })
  let release = () => {}
  const begun = new Promise<void>((resolve) => (release = resolve))
  let isRunning = false
  const long = task('long', { input: z.object({}), run: () => ((isRunning = true), begun) })
  const worker = await sluice.work([long], { concurrency: 2 })
  await sluice.send(long, {})
  const isIdle = async () => (await idleWorkers(sluice.db)).length === 1
  await until(async () => isRunning && (await isIdle()), 'it has room for one more')
  const stopped = worker.stop()
  await until(async () => !(await isIdle()), 'nobody is told that it has room')
  release()
  await stopped
  await sluice.close()
})

test('an idle worker that was given up registers as idle again, so that senders notify it', async () => {
  const sluice = await Sluice.open({ store: (await freshDatabase()).url })
  await sluice.work([task('quiet', { input: z.object({}), run: () => undefined })])
  await until(async () => (await idleWorkers(sluice.db)).length === 1, 'it is idle')
  const [before] = await idleWorkers(sluice.db)
  await rescue(sluice.db, before)
  await until(async () => (await idleWorkers(sluice.db)).length === 1, 'it is idle anew')
  // Its first sleep would end some eight beats later.
  expect(await beats(sluice.db)).toBeLessThanOrEqual(3)
  expect(await idleWorkers(sluice.db)).not.toEqual([before])
  await sluice.close()
})

test('inside a transaction of the embedded engine ctx.fetch is refused at once, even under a fresh grant', async () => {
  const sluice = await Sluice.open({ store: 'memory:' })
  const inside = task('inside', {
    input: z.object({}),
    limits: [limit('calls', { rate: '500/s' })],
    run: (_, ctx) => sluice.transaction(() => ctx.fetch('http://127.0.0.1:1/')),
  })
  await sluice.work([inside])
  expect(await sluice.waitFor(await sluice.send(inside, {}))).toMatchObject({
    reason: 'refused',
    error: { code: 'SLUICE_QUERY_OUTSIDE_TRANSACTION', message: expect.stringMatching(/^ctx\.fetch is not possible/) },
  })
  await sluice.close()
})
