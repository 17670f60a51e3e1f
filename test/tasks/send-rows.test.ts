import { describe, expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { newId } from '../../src/core/hash.ts'
import { sendRows } from '../../src/tasks/send-rows.ts'
import { Rulebook } from '../../src/tasks/rule.ts'
import type { NewJob } from '../../src/store/send.ts'
import { later, until } from '../until.ts'
import { emptied, mainEngines, quietTask } from '../claim/engine.ts'
import { jobsLeft } from '../store/engine.ts'

const quiet = quietTask('quiet')

interface Line {
  n: unknown
  key?: string
}
const read = ({ n, key }: Line) => ({
  input: { n: n as number },
  options: key === undefined ? {} : { idempotencyKey: key },
})

for (const engine of mainEngines) {
  describe(`sendRows on ${engine.name}`, () => {
    const at = emptied(engine)

    it('leaves out bad rows, and rows whose key exists, also within the same call', async () => {
      const bad: unknown[] = []
      const progress: number[] = []
      const rows: Line[] = Array.from({ length: 700 }, (_, n) => ({ n: n === 3 ? 'x' : n, key: `k${n === 9 ? 8 : n}` }))
      const options = {
        read,
        onBad: (error: Error, row: Line) => void bad.push([row.n, (error as { code?: string }).code]),
        onProgress: ({ sent, known }: { sent: number; known: number }) => void progress.push(sent + known),
      }
      expect(await at.sluice.sendRows(quiet, rows, options)).toEqual({ sent: 698, known: 1, bad: 1 })
      expect(bad).toEqual([['x', 'SLUICE_INVALID_INPUT']])
      expect(progress).toEqual([500, 699])
      expect(await at.sluice.sendRows(quiet, rows, options)).toEqual({ sent: 0, known: 699, bad: 1 })
      expect(await at.sluice.jobs.count()).toEqual({ count: 698, isExact: true })
    })

    it('gives the ids of each batch in the order of its rows, and the ids of earlier jobs for their keys', async () => {
      const all: string[] = []
      const onProgress = (_: unknown, ids: readonly string[]) => void all.push(...ids)
      const first = await at.sluice.send(quiet, { n: 5 }, { idempotencyKey: 'k5' })
      const rows = Array.from({ length: 510 }, (_, n): Line => (n % 5 === 0 ? { n, key: `k${n % 10}` } : { n }))
      await at.sluice.sendRows(quiet, rows, { read, onProgress })
      const inputs = await Promise.all([0, 1, 5, 10, 15, 509].map((i) => at.sluice.jobs.get(String(all[i]))))
      expect(inputs.map((job) => job?.input)).toEqual([0, 1, 5, 0, 5, 509].map((n) => ({ n })))
      expect(all[5]).toBe(first)
      expect(all).toHaveLength(510)
    })

    it('sendMany returns the ids of its jobs in order, over batches', async () => {
      const ids = await at.sluice.sendMany(
        quiet,
        Array.from({ length: 1_001 }, (_, n) => ({ n })),
      )
      expect(new Set(ids).size).toBe(1_001)
      const some = await Promise.all([0, 499, 500, 1_000].map((i) => at.sluice.jobs.get(String(ids[i]))))
      expect(some.map((job) => job?.input)).toEqual([0, 499, 500, 1_000].map((n) => ({ n })))
      expect(await at.sluice.sendMany(quiet, [])).toEqual([])
    })

    it('counts rows as sent that replace the jobs of their keys', async () => {
      const replacing = ({ n }: Line) => ({
        input: { n: n as number },
        options: { idempotencyKey: String(n as number), replace: true },
      })
      for (let times = 0; times < 2; times++) {
        const rows = [1, 2].map((n): Line => ({ n }))
        expect(await at.sluice.sendRows(quiet, rows, { read: replacing })).toEqual({ sent: 2, known: 0, bad: 0 })
      }
      expect(await jobsLeft(at.db)).toBe(2)
    })

    it('without onBad stops at the first bad row, names it, and keeps the jobs before it', async () => {
      const rows = [1, 2, 'x', 4].map((n): Line => ({ n }))
      const code = 'SLUICE_INVALID_INPUT'
      const stops = at.sluice.sendRows(quiet, rows, { read })
      await expect(stops).rejects.toMatchObject({
        code,
        message: expect.stringMatching(/^row 2: .*\(2 rows before it/),
      })
      const broken = at.sluice.sendRows(quiet, rows, { read: () => JSON.parse('{') as never })
      await expect(broken).rejects.toMatchObject({ code: 'SLUICE_BAD_ROW', message: expect.stringMatching(/^row 0: /) })
      expect(await jobsLeft(at.db)).toBe(2)
    })

    it('stops when onBad throws, and on an abort after the batch in hand', async () => {
      const onBad = () => {
        throw new Error('enough')
      }
      await expect(at.sluice.sendRows(quiet, [{ n: 1 }, { n: 'x' }], { read, onBad })).rejects.toThrow('enough')
      expect(await jobsLeft(at.db)).toBe(1)
      const stop = new AbortController()
      const endless = function* () {
        for (let n = 0; ; n++) yield { n }
      }
      const onProgress = () => stop.abort()
      const { sent } = await at.sluice.sendRows(quiet, endless(), { read, onProgress, signal: stop.signal })
      // The second batch is read while the first is written, if the store leaves time for that.
      expect([500, 1_000]).toContain(sent)
    })

    it('takes part in a transaction, and takes options for each row', async () => {
      const ids = [newId(), newId()]
      const own = (n: number) => ({
        input: { n },
        options: { id: ids[n] ?? '', priority: n, queue: `q${n}`, tags: ['t'] },
      })
      const send = (fails: boolean) =>
        at.sluice.transaction(async (tx) => {
          await at.sluice.sendRows(quiet, [0, 1], { read: own, tx })
          if (fails) throw new Error('no')
        })
      await expect(send(true)).rejects.toThrow('no')
      expect(await jobsLeft(at.db)).toBe(0)
      await send(false)
      expect(await at.sluice.list()).toMatchObject([
        { id: ids[1], priority: 1, queue: 'q1', tags: ['t'] },
        { id: ids[0], priority: 0, queue: 'q0' },
      ])
    })
  })
}

describe('a stream of rows', () => {
  /** A store whose writes end when the test lets them. */
  function slow(rows: Iterable<Line>) {
    const writes: { first: unknown; size: number; end: (error?: Error) => void }[] = []
    const write = (jobs: NewJob[]) =>
      new Promise<string[]>((resolve, reject) => {
        const end = (error?: Error) => (error === undefined ? resolve(jobs.map(({ id }) => id)) : reject(error))
        writes.push({ first: (JSON.parse(jobs[0]?.input ?? '{}') as Line).n, size: jobs.length, end })
      })
    const sent = later(sendRows(quiet, rows, { read }, { clock: systemClock, rulebook: new Rulebook(), write }))
    return { writes, sent }
  }
  const lines = function* (count: number, seen: (n: number) => void) {
    for (let n = 0; n < count; n++) {
      seen(n)
      yield { n }
    }
  }

  it('is written in smaller batches if its inputs are large', async () => {
    const sizes: number[] = []
    const write = async (jobs: NewJob[]) => {
      sizes.push(jobs.length)
      return jobs.map(({ id }) => id)
    }
    const rows = Array<string>(40).fill('x'.repeat(250_000))
    const asTenant = { read: (tenant: string) => ({ input: { n: 1, tenant } }) }
    await sendRows(quiet, rows, asTenant, { clock: systemClock, rulebook: new Rulebook(), write })
    expect(sizes).toEqual([34, 6])
  })

  it('is read one batch ahead while a batch is written, and written in order', async () => {
    let reached = 0
    const { writes, sent } = slow(lines(1_200, (n) => (reached = n)))
    await until(() => reached === 999)
    expect(writes).toMatchObject([{ first: 0, size: 500 }])
    writes[0]?.end()
    await until(() => writes.length === 2)
    expect(writes[1]).toMatchObject({ first: 500, size: 500 })
    writes[1]?.end()
    await until(() => writes.length === 3)
    writes[2]?.end()
    expect(await sent).toEqual({ sent: 1_200, known: 0, bad: 0 })
  })

  it('ends when a write fails, with nothing written after it, and never before a write has ended', async () => {
    const failing = slow(lines(1_200, () => {}))
    await until(() => failing.writes.length === 1)
    failing.writes[0]?.end(new Error('the disk is full'))
    await expect(failing.sent).rejects.toThrow('the disk is full')
    expect(failing.writes).toHaveLength(1)
    const broken = slow(
      lines(700, (n) => {
        if (n === 600) throw new Error('the file ends')
      }),
    )
    let isOver = false
    void broken.sent.catch(() => (isOver = true))
    await until(() => broken.writes.length === 1)
    await new Promise((resolve) => setImmediate(resolve))
    expect(isOver).toBe(false)
    broken.writes[0]?.end()
    await expect(broken.sent).rejects.toThrow('the file ends')
  })
})
