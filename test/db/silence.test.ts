import { beforeAll, expect, it, type TestContext } from 'vitest'
import { z } from 'zod'
import { type Clock, systemClock } from '../../src/core/clock.ts'
import { openPg } from '../../src/db/pg.ts'
import { task } from '../../src/tasks/task.ts'
import { Sluice } from '../../src/sluice.ts'
import { freshDatabase } from '../servers/database.ts'
import { startProxy } from '../servers/proxy.ts'
import { until } from '../until.ts'
import { attemptCalls, workerIds } from '../claim/engine.ts'
import { beats } from '../fleet/engine.ts'

// A firewall or a failed-over address drops open connections: nothing arrives on them, and no error reports it.

let url: string
beforeAll(async () => void (url = (await freshDatabase()).url))

/** A proxy before the database for one test. */
async function way({ onTestFinished }: TestContext) {
  const proxy = await startProxy({ port: Number(new URL(url).port) })
  onTestFinished(() => proxy.close())
  return proxy
}

it.concurrent('one statement at most is late, however many idle connections became half-open together', async (test) => {
  const proxy = await way(test)
  const db = openPg({ url: proxy.url(url), clock: systemClock, answerMs: 500 })
  const unreachable = { code: 'SLUICE_STORE_UNREACHABLE' }
  const all = (times: number) =>
    Promise.all(
      Array.from({ length: times }, () => [
        db.query('select pg_sleep(0.2)'),
        db.call(attemptCalls.claim, 'select pg_sleep(0.2)', []),
        db.call('other', 'select pg_sleep(0.2)', []),
      ]).flat(),
    )
  await until(
    () =>
      all(2).then(
        () => true,
        () => false,
      ),
    'connections are open',
  )
  proxy.strand()
  await expect(db.query('select 1')).rejects.toMatchObject(unreachable)
  for (let i = 0; i < 3; i++) {
    expect(await db.query('select 1 as n')).toEqual([{ n: 1 }])
    expect(await db.call(attemptCalls.claim, 'select 1 as n', [])).toEqual([{ n: 1 }])
    expect(await db.call('other', 'select 1 as n', [])).toEqual([{ n: 1 }])
  }
  await db.close()
})

it.concurrent('a statement of a transaction may take long, but ends when its connection is half-open', async (test) => {
  const proxy = await way(test)
  const db = openPg({ url: proxy.url(url), clock: systemClock, answerMs: 600 })
  const slow = (seconds: number) => db.transaction((tx) => tx.query('select 1 as n from pg_sleep($1)', [seconds]))
  await until(
    () =>
      slow(0).then(
        () => true,
        () => false,
      ),
    'it is connected',
  )
  expect(await slow(2)).toEqual([{ n: 1 }])
  const lost = db.transaction(async (tx) => {
    await tx.query('select 1')
    proxy.strand()
    await tx.query('select 2')
  })
  await expect(lost).rejects.toMatchObject({ code: 'SLUICE_STORE_UNREACHABLE' })
  expect(await slow(0)).toEqual([{ n: 1 }])
  await db.close()
})

it.concurrent('a half-open connection that listens is noticed by its pings, and replaced', async (test) => {
  const proxy = await way(test)
  const hasty: Clock = {
    ...systemClock,
    sleep: (ms, signal) =>
      new Promise((resolve) => {
        systemClock.after(ms / 20, resolve)
        signal?.addEventListener('abort', () => resolve(), { once: true })
      }),
  }
  const db = openPg({ url: proxy.url(url), clock: hasty, answerMs: 2_000 })
  const heard: string[] = []
  await db.listen('silence', (payload) => heard.push(payload))
  await until(() => db.listening(), 'it listens')
  proxy.strand()
  const direct = openPg({ url, clock: systemClock })
  // It may listen again before anybody sees that it did not.
  await until(async () => {
    await direct.query(`select pg_notify('silence', 'again')`)
    return heard.includes('again')
  }, 'it hears on another connection')
  await Promise.all([db.close(), direct.close()])
})

it.concurrent('a worker whose connections all become half-open at once goes on, and is not given up', async (test) => {
  const proxy = await way(test)
  const direct = await Sluice.open({ store: url })
  const far = await Sluice.open({ store: proxy.url(url) })
  const one = task('silence', { input: z.object({}), run: () => undefined })
  const worker = await far.work([one])
  await far.send(one, {})
  await until(async () => (await beats(direct.db)) >= 2, 'it beats')
  const [registered, before] = [await workerIds(direct.db), await beats(direct.db)]
  proxy.strand()
  const strandedMs = systemClock.monotonicMs()
  const id = await direct.send(one, {})
  expect(await direct.waitFor(id, { timeout: '90s' })).toMatchObject({ state: 'done', attempt: 1, ambiguous: false })
  // The expected time is 10 s; the bound adds as much again for a busy machine, twice.
  expect(systemClock.monotonicMs() - strandedMs).toBeLessThan(30_000)
  const ids = await Promise.all([far.send(one, {}), far.send(one, {})])
  for (const each of ids) expect(await direct.waitFor(each, { timeout: '90s' })).toMatchObject({ state: 'done' })
  await until(async () => (await beats(direct.db)) > before + 2, 'it beats again')
  expect(await workerIds(direct.db)).toEqual(registered)
  await worker.stop()
  await Promise.all([far.close(), direct.close()])
})
