/** What a process sends whose own worker idles begins at once: in a slot that is free, each job once, and none is lost. */
import { afterEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { watch } from '../../src/core/probe.ts'
import { task } from '../../src/dispatch/task.ts'
import { limit } from '../../src/limits/limit.ts'
import type { Sluice } from '../../src/sluice.ts'
import { count, mainEngines, openOn } from '../dispatch/engine.ts'
import { until } from '../until.ts'

describe.each(mainEngines)('on $name, a worker of the process that sends', (engine) => {
  const open: Sluice[] = []
  afterEach(async () => {
    watch(undefined)
    await Promise.all(open.splice(0).map((sluice) => sluice.close()))
  })

  /** A worker that idles, and counts its runs; `claims`: how often it has asked the store for jobs. */
  async function idle(concurrency: number, run: (n: number) => unknown = () => {}) {
    const sluice = await openOn(engine)
    open.push(sluice)
    const at = { sluice, claims: 0, idles: 0, runs: [] as number[], most: 0, running: 0, ambiguous: 0 }
    watch((point) => {
      if (point === 'claim.sent') at.claims++
      if (point === 'idle') at.idles++
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
    const done = (all: number) =>
      until(async () => (await count(sluice.db, `sluice.done where state = 'done'`)) === all, `${all} are done`)
    const begin = async () => {
      const worker = await sluice.work([work], { concurrency })
      const before = at.idles
      // The first job makes its lane known; then the worker has looked again, and found nothing.
      await sluice.send(work, { n: 0 })
      await done(1)
      await until(() => at.idles > before + 1, 'it sleeps')
      return worker
    }
    return Object.assign(at, { work, done, begin })
  }

  it('claims nothing for what is sent to it alone', async () => {
    const at = await idle(3)
    await at.begin()
    const before = at.claims
    let asked = 0
    for (let n = 1; n <= 20; n++) {
      // Its rounds of housekeeping, and its last sleep's end, may have it look by itself.
      const claims = at.claims
      await at.sluice.send(at.work, { n })
      await until(() => at.runs.includes(n), 'it runs')
      if (at.claims > claims) asked++
    }
    await at.done(21)
    expect(at.runs).toEqual(Array.from({ length: 21 }, (_, n) => n))
    expect(asked).toBeLessThan(5)
    expect(at.claims - before).toBeLessThan(10)
    expect(await count(at.sluice.db, 'sluice.claim')).toBe(0)
  })

  it('never runs more at once than it has slots', async () => {
    let open: () => void = () => {}
    const opened = new Promise<void>((resolve) => (open = resolve))
    const at = await idle(2, (n) => (n === 0 ? undefined : opened))
    await at.begin()
    for (let n = 1; n <= 6; n++) await at.sluice.send(at.work, { n })
    expect(at.most).toBeLessThanOrEqual(2)
    open()
    await at.done(7)
    expect(at.most).toBe(2)
    expect(at.runs.toSorted((a, b) => a - b)).toEqual([0, 1, 2, 3, 4, 5, 6])
  })

  it('loses nothing, and begins nothing, when it is told to stop meanwhile', async () => {
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
      expect(await count(at.sluice.db, 'sluice.claim')).toBe(0)
    }
    await at.sluice.dispatchOnce([at.work])
    await at.done(sent)
    expect(at.runs.toSorted((a, b) => a - b)).toEqual(Array.from({ length: sent }, (_, n) => n))
    expect(at.ambiguous).toBe(0)
  })

  it('gets what it is sent though its limit fails all that look at it', async () => {
    const at = await idle(2)
    await at.begin()
    await at.sluice.db.query('update sluice.ledger set n = 9223372036854775807 where bucket = sluice.hash64($1)', [
      'wide',
    ])
    const id = await at.sluice.send(at.work, { n: 1 })
    await until(async () => (await count(at.sluice.db, 'sluice.parked')) === 1, 'the bucket is parked')
    expect(await at.sluice.jobs.get(id)).toMatchObject({ state: 'waiting' })
  })
})
