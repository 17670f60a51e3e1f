/** Jobs of a process whose own worker idles begin at once: in a free slot, each job once, and none is lost. */
import { AsyncLocalStorage } from 'node:async_hooks'
import { afterEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { watch } from '../../src/core/test-points.ts'
import { task } from '../../src/tasks/task.ts'
import { limit } from '../../src/limits/limit.ts'
import type { Sluice } from '../../src/sluice.ts'
import type { WorkOptions } from '../../src/worker/options.ts'
import { claimsInHand, count, mainEngines, openOn } from '../claim/engine.ts'
import { until } from '../until.ts'
import { hold } from '../limits/engine.ts'
import { patient, unhurried } from './patience.ts'

/** Handlers that wait for `opened` end when `open` is called. */
function gate(): { open: () => void; opened: Promise<void> } {
  let open: () => void = () => {}
  const opened = new Promise<void>((resolve) => (open = resolve))
  return { open, opened }
}

describe.each(mainEngines)('on $name, a worker of the process that sends', (engine) => {
  const open: Sluice[] = []
  afterEach(async () => {
    watch(undefined)
    await Promise.all(open.splice(0).map((sluice) => sluice.close()))
  })

  /** A worker that idles, and counts its runs; `claims`: how often it has claimed. */
  async function idle(concurrency: number, run: (n: number) => unknown = () => {}, clock = unhurried()) {
    const sluice = await openOn(engine, clock)
    open.push(sluice)
    const at = { sluice, claims: 0, idles: false, runs: [] as number[], most: 0, running: 0, ambiguous: 0 }
    watch((point) => {
      if (point === 'claim.sent') at.claims++
      if (point === 'claim.sent' || point === 'idle') at.idles = point === 'idle'
    })
    const work = task('work', {
      input: z.object({ n: z.number() }),
      limits: [limit('wide', { rate: '1000000/s', burst: 1_000_000 })],
      run: async ({ n }, { ambiguous }) => {
        at.runs.push(n)
        if (ambiguous) at.ambiguous++
        at.most = Math.max(at.most, ++at.running)
        try {
          await run(n)
        } finally {
          at.running--
        }
      },
    })
    const done = (all: number) => until(async () => (await sluice.jobs.status()).done === all, `${all} are done`)
    const begin = async (options: WorkOptions = {}) => {
      const worker = await sluice.work([work], { concurrency, ...options })
      // The first job makes its lane known.
      await sluice.send(work, { n: 0 })
      await done(1)
      await until(() => at.idles, 'it sleeps')
      return worker
    }
    return Object.assign(at, { work, done, begin })
  }

  it('claims nothing for jobs that are sent to it alone', async () => {
    // Without rounds of maintenance, which claim as well.
    const at = await idle(3, undefined, unhurried(patient()))
    await at.begin()
    const before = at.claims
    let asked = 0
    for (let n = 1; n <= 20; n++) {
      // The end of the worker's last sleep may lead to a claim as well.
      const claims = at.claims
      await at.sluice.send(at.work, { n })
      await until(() => at.runs.includes(n), 'it runs')
      if (at.claims > claims) asked++
    }
    await at.done(21)
    expect(at.runs).toEqual(Array.from({ length: 21 }, (_, n) => n))
    expect(asked).toBeLessThan(5)
    expect(at.claims - before).toBeLessThan(10)
    expect(await claimsInHand(at.sluice.db)).toBe(0)
  })

  it('begins a job after its send has resolved, and in no context of the sender', async () => {
    const order: string[] = []
    const context = new AsyncLocalStorage<string>()
    const at = await idle(3, (n) => order.push(`run ${n} ${context.getStore()}`))
    await at.begin()
    for (let n = 1; n <= 5; n++) {
      await context.run('sender', () => at.sluice.send(at.work, { n }))
      order.push(`sent ${n}`)
      await at.done(n + 1)
    }
    const expected = [1, 2, 3, 4, 5].flatMap((n) => [`sent ${n}`, `run ${n} undefined`])
    expect(order).toEqual(['run 0 undefined', ...expected])
  })

  it('keeps to its own rate', async () => {
    const at = await idle(5)
    // Three may begin at once, and the first job was one of them.
    await at.begin({ rate: '30/h' })
    await Promise.all([1, 2, 3, 4, 5].map((n) => at.sluice.sendMany(at.work, [{ n }])))
    await at.done(3)
    expect((await at.sluice.jobs.status()).waiting).toBe(3)
    expect(at.runs).toHaveLength(3)
  })

  it('takes no job of a queue that it does not serve', async () => {
    const at = await idle(3)
    await at.begin({ queues: ['default'] })
    await at.sluice.send(at.work, { n: 1 }, { queue: 'other' })
    expect(await at.sluice.dispatchOnce([at.work], { queues: ['other'] })).toBe(1)
    const id = await at.sluice.send(at.work, { n: 2 }, { queue: 'other' })
    expect(await at.sluice.jobs.get(id)).toMatchObject({ state: 'waiting' })
  })

  it('leaves jobs that it did not begin to others, even while one of its handlers goes on', async () => {
    const { open, opened } = gate()
    const at = await idle(3, (n) => (n === 1 ? opened : undefined))
    const worker = await at.begin()
    await at.sluice.send(at.work, { n: 1 })
    await until(() => at.running === 1, 'the first runs')
    const send = at.sluice.send(at.work, { n: 2 })
    const stopped = worker.stop()
    await send
    await at.sluice.work([at.work], { concurrency: 3 })
    await until(() => at.runs.includes(2), 'somebody runs it')
    open()
    await stopped
    await at.done(3)
    expect(at.ambiguous).toBe(0)
  })

  it('leaves a job to a claim while the vendor has to accept it first, and that claim ends the trial', async () => {
    const at = await idle(1)
    await at.begin()
    const { db } = at.sluice
    await hold(db, ['wide'], 0, 60_000_000)
    await at.sluice.send(at.work, { n: 1 })
    await at.done(2)
    const newest = `select trial_us from sluice.ledger where bucket = sluice.hash64('wide') order by at desc, n desc limit 1`
    await until(async () => (await db.query<{ trial_us: string }>(newest))[0]?.trial_us === '0', 'the trial ends')
  })

  it('never runs more at once than it has slots', async () => {
    const { open, opened } = gate()
    const at = await idle(2, (n) => (n === 0 ? undefined : opened))
    await at.begin()
    for (let n = 1; n <= 6; n++) await at.sluice.send(at.work, { n })
    await Promise.all([7, 8, 9].map((n) => at.sluice.sendMany(at.work, [{ n }])))
    await until(() => at.most >= 2, 'both slots run a job')
    open()
    await at.done(10)
    expect(at.most).toBe(2)
    expect(at.runs.toSorted((a, b) => a - b)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
  })

  it('loses nothing, and begins nothing, when it is stopped meanwhile', async () => {
    const at = await idle(2)
    let sent = 1
    for (let round = 0; round < 8; round++) {
      const worker = round === 0 ? await at.begin() : await at.sluice.work([at.work], { concurrency: 2 })
      const sends: Promise<unknown>[] = []
      for (let i = 0; i < 4; i++) {
        const send = at.sluice.send(at.work, { n: sent++ })
        sends.push(send)
        if (i < round % 4) await send
      }
      await worker.stop()
      const runs = at.runs.length
      await Promise.all(sends)
      expect(at.runs).toHaveLength(runs)
      expect(await claimsInHand(at.sluice.db)).toBe(0)
    }
    await at.sluice.dispatchOnce([at.work])
    await at.done(sent)
    expect(at.runs.toSorted((a, b) => a - b)).toEqual(Array.from({ length: sent }, (_, n) => n))
    expect(at.ambiguous).toBe(0)
  })

  it('runs its jobs, and gets its slots back, even if a bad bucket makes every claim of its limit fail', async () => {
    const { open, opened } = gate()
    const at = await idle(2, (n) => (n === 0 ? undefined : opened))
    await at.begin()
    const { db } = at.sluice
    const set = (n: string) =>
      db.query(
        `update sluice.ledger set n = ${n} where ctid = (
           select ctid from sluice.ledger where bucket = sluice.hash64('wide') order by at desc, n desc limit 1)`,
      )
    await set('9223372036854775807')
    for (let n = 1; n <= 3; n++) {
      const id = await at.sluice.send(at.work, { n })
      expect(await at.sluice.jobs.get(id)).toMatchObject({ state: 'waiting' })
    }
    await until(async () => (await count(db, 'sluice.parked')) === 1, 'the bucket is parked')
    await set('1000')
    await at.sluice.release('wide')
    await until(() => at.running === 2, 'both slots are used')
    open()
    await at.done(4)
    expect(at.most).toBe(2)
  })
})
