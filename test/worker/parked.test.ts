/** A bucket with bad data fails its users, and no others: running attempts, their ends, and takes. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, it, describe, onTestFinished } from 'vitest'
import { z } from 'zod'
import { task } from '../../src/tasks/task.ts'
import { limit } from '../../src/limits/limit.ts'
import { storeOn } from '../../src/db/store.ts'
import { createRound } from '../../src/worker/round.ts'
import { claimAll, emptied, mainEngines } from '../claim/engine.ts'
import { until } from '../until.ts'
import { rescue } from '../fleet/engine.ts'
import { codeOf } from './stage.ts'

const by = ({ key }: { key: string }) => key
const calls = limit('spoilt.calls', { window: '1000/h', by })
const bigintMax = '9223372036854775807'
const seats = limit('spoilt.seats', { concurrency: 2, by })

describe.each(mainEngines)('a bucket with bad data, on $name', (engine) => {
  const at = emptied(engine)

  it('fails further requests of it with a code, and blocks neither the end of an attempt nor another key', async () => {
    const { sluice, db } = at
    const server = createServer((_, response) => response.end('ok'))
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
    const codes: Record<string, unknown> = {}
    const call = task('spoilt', {
      input: z.object({ key: z.string() }),
      limits: [calls, seats],
      allowPrivate: [new URL(url).host],
      run: async ({ key }, context) => {
        await (await context.fetch(url)).text()
        // The newest row of both buckets of this key gets a number with which nothing can be computed.
        if (key === 'bad')
          await db.query(
            `update sluice.ledger l set n = ${bigintMax} from (
               select distinct on (k.bucket) k.bucket, k.at, k.n from sluice.ledger k join sluice.bucket b on b.id = k.bucket
               where b.key = 'bad' order by k.bucket, k.at desc, k.n desc) x
             where (l.bucket, l.at, l.n) = (x.bucket, x.at, x.n)`,
          )
        codes[key] = await codeOf(context.fetch(url).then((response) => response.text()))
      },
    })
    const [bad, good] = [await sluice.send(call, { key: 'bad' }), await sluice.send(call, { key: 'good' })]
    const worker = await sluice.work([call])
    onTestFinished(() => void server.close())
    onTestFinished(() => worker.stop())
    for (const id of [bad, good])
      await until(async () => (await sluice.jobs.get(id))?.state === 'done', 'it ends as its handler did')
    expect(codes).toEqual({ bad: 'SLUICE_PARKED', good: undefined })
    expect((await sluice.parked()).map(({ name }) => name).toSorted()).toEqual(['spoilt.calls:bad', 'spoilt.seats:bad'])
    const more = [await sluice.send(call, { key: 'bad' }), await sluice.send(call, { key: 'good' })]
    await until(async () => (await sluice.jobs.get(more[1] ?? ''))?.state === 'done', 'the other key goes on')
    expect(await sluice.jobs.get(more[0] ?? '')).toMatchObject({ state: 'waiting', attempt: 0 })
  })

  it('is parked by a change that fails, which counts when it is released', async () => {
    const { sluice, db } = at
    const spoil = () => db.query(`update sluice.ledger set n = ${bigintMax}`)
    const server = createServer(
      (_, response) => void spoil().then(() => response.writeHead(429, { 'retry-after': '500' }).end()),
    )
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
    const [held, used] = [
      limit('spoilt.held', { window: '9/h' }),
      limit('spoilt.used', { window: '9/h', cost: () => 2 }),
    ]
    const input = z.object({})
    const asks = task('spoilt.asks', {
      input,
      limits: [held],
      allowPrivate: [new URL(url).host],
      run: async (_, { fetch }) => void (await fetch(url)),
    })
    const uses = task('spoilt.uses', { input, limits: [used], run: (_, { settle }) => spoil().then(() => settle(5)) })
    const worker = await sluice.work([asks, uses])
    onTestFinished(() => void server.close())
    onTestFinished(() => worker.stop())
    for (const one of [asks, uses]) {
      const id = await sluice.send(one, {})
      await until(async () => ['done', 'scheduled'].includes((await sluice.jobs.get(id))?.state ?? ''), 'it has ended')
      await db.query(`update sluice.ledger set n = 2 where n = ${bigintMax}`)
    }
    expect(await db.query('select name, hold > 0 as held, used from sluice.parked order by name')).toEqual([
      { name: 'spoilt.held', held: true, used: '0' },
      { name: 'spoilt.used', held: false, used: '3' },
    ])
  })

  it('keeps no round from its work: jobs of lost workers are still returned', async () => {
    const { sluice, db } = at
    const call = task('spoilt.round', { input: z.object({ key: z.string() }), limits: [seats], run: () => undefined })
    await sluice.send(call, { key: 'bad' })
    await claimAll(db, at.worker, [call.name], 1)
    await db.query(`update sluice.ledger set n = ${bigintMax}`)
    const rescued: number[] = []
    const round = createRound({
      store: storeOn(db),
      hand: { size: 1, jobs: () => [], drop() {}, endTimedOut() {}, lostClaimers: () => [] },
      member: {
        runRound: async () => ({ lost: undefined, leads: true, claims: [], mayRest: false }),
        watch: async () => {
          rescued.push((await rescue(db, at.worker)) ?? 0)
          return []
        },
        lostJobs: async () => [],
        wakeForMissedWork: async () => {},
        endOverdue: async () => 0,
      },
      finisher: { hasGivenUp: false },
      maintenance: { run: async () => {} },
      stop: new AbortController().signal,
      publish: async () => {},
    } as never)
    await expect(round()).rejects.toMatchObject({ code: '22003' })
    expect((await sluice.parked()).map(({ name }) => name)).toEqual(['spoilt.seats:bad'])
    await round()
    expect(rescued).toEqual([1])
  })

  it('fails takes of it with a code, from the first on', async () => {
    const { sluice, db } = at
    await (await sluice.takes.take(calls, { key: 'bad' })).release()
    await db.query(`update sluice.ledger set n = ${bigintMax}`)
    for (let n = 0; n < 2; n++)
      await expect(sluice.takes.take(calls, { key: 'bad', maxWaitMs: 60_000 })).rejects.toMatchObject({
        code: 'SLUICE_PARKED',
        retryable: true,
      })
    await expect(sluice.takes.tryTake(calls, { key: 'bad' })).rejects.toMatchObject({ code: 'SLUICE_PARKED' })
    await sluice.takes.take(calls, { key: 'good' })
    expect((await sluice.parked()).map(({ name }) => name)).toEqual(['spoilt.calls:bad'])
    await db.query(`update sluice.ledger set n = 2 where n = ${bigintMax}`)
    expect(await sluice.release('spoilt.calls:bad')).toBe(true)
    await sluice.takes.take(calls, { key: 'bad' })
  })
})
