/** A handler blocks the event loop: no other worker takes the worker's jobs, nothing is lost, nothing runs twice. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it, type TestContext } from 'vitest'
import { newId } from '../../src/core/hash.ts'
import { StoreError } from '../../src/index.ts'
import type { Sluice } from '../../src/sluice.ts'
import { isLong } from '../long.ts'
import { freshDatabase } from '../servers/database.ts'
import { later, until } from '../until.ts'
import { count, workerIds } from './engine.ts'
import { fleet, note, type Run } from './fleet.ts'
import { workersSeen } from '../fleet/engine.ts'

/**
 * Long: beyond the 10 s, and a beat, after which a silent worker is given up, and after which a request counts as lost.
 * Short: beyond the 5 s after which a claim is too old to be begun.
 */
const blocksMs = isLong ? 13_000 : 6_000
const few = 200

/** Workers in two processes, A and B, of which one owns the data if they are embedded; each has a queue of its own. */
async function two(store: string, context: TestContext) {
  const { sluice, runs, start, owner } = await fleet(store, context, ['default', 'a'])
  const other = await start(['default', 'b'])
  return { sluice, runs, a: owner?.pid, b: other.pid }
}

/** Jobs for both workers; sent again, under the same ids, while the store does not answer. Resolves to how many. */
async function sendFew(sluice: Sluice): Promise<number> {
  const send = async (n: number) => {
    const id = newId()
    for (;;) {
      try {
        return await sluice.send(note, { n }, { id })
      } catch (error) {
        if (!(error instanceof StoreError)) throw error
      }
    }
  }
  await Promise.all(Array.from({ length: few }, (_, n) => send(n)))
  return few
}

/** All of them ran, once each and for the first time, and their ends were recorded. */
async function checkAll(sluice: Sluice, runs: readonly Run[], sent: number): Promise<void> {
  const ended = `sluice.done where state = 'done' and attempt = 1 and crashes = 0 and failed = 0 and not ambiguous`
  await until(async () => (await sluice.jobs.status()).done === sent, 'all done', 120_000)
  expect(await count(sluice.db, ended)).toBe(sent)
  expect(runs.filter(({ attempt, ambiguous }) => attempt !== 1 || ambiguous)).toEqual([])
  expect([runs.length, new Set(runs.map(({ id }) => id)).size]).toEqual([sent, sent])
}

/** Blocks the worker of this queue while others go on, and then lets it work again. Resolves to the number of its jobs. */
async function block({ sluice, runs }: { sluice: Sluice; runs: Run[] }, queue: 'a' | 'b', pid: number | undefined) {
  const before = await workerIds(sluice.db)
  expect(before).toHaveLength(2)
  const traffic = later(sendFew(sluice))
  await until(() => runs.length > few / 10, 'jobs are under way')
  const id = await sluice.send(note, { blocksMs }, { queue })
  await until(() => runs.some((run) => run.id === id), 'its event loop is blocked')
  let sent = (await traffic) + 1 + (await sendFew(sluice))
  await until(async () => (await sluice.jobs.get(id))?.state === 'done', 'its end is taken')
  const last = await sluice.send(note, {}, { queue })
  sent++
  await until(() => runs.some((run) => run.id === last), 'it goes on')
  expect(runs.find((run) => run.id === last)?.pid).toBe(pid)
  await checkAll(sluice, runs, sent)
  // No worker was given up, neither then nor soon after.
  await until(async () => (await workersSeen(sluice.db, 3_000_000)) === 2, 'no doubts')
  expect(await workerIds(sluice.db)).toEqual(before)
  return sent
}

describe('a worker whose event loop is blocked', () => {
  it('keeps its jobs on a server, because a thread sends its heartbeats, and goes on', async (context) => {
    const fleetOf = await two((await freshDatabase()).url, context)
    expect(await block(fleetOf, 'a', fleetOf.a)).toBe(fleetOf.runs.length)
  })

  for (const queue of ['a', 'b'] as const)
    // The embedded engine is slow to open and to block; the server's case above is the quick one.
    it.runIf(isLong)(
      `keeps its jobs, embedded as ${queue === 'a' ? 'the owner of the data' : 'a client of its owner'}, and goes on`,
      async (context) => {
        const dir = mkdtempSync(join(tmpdir(), 'sluice-blocked-'))
        context.onTestFinished(() => rmSync(dir, { recursive: true, force: true }))
        const fleetOf = await two(join(dir, 'data'), context)
        expect(await block(fleetOf, queue, fleetOf[queue])).toBe(fleetOf.runs.length)
      },
    )
})
