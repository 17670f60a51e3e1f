import { describe, expect, it } from 'vitest'
import { type Log, task } from '../../src/index.ts'
import { NoteBook, Notes } from '../../src/worker/notes.ts'
import { storeOn } from '../../src/db/store.ts'
import { claimAll, emptied, mainEngines, tenantInput } from '../claim/engine.ts'
import { until } from '../until.ts'
import { rescue } from '../fleet/engine.ts'

const mute: Log = { debug() {}, info() {}, warn() {}, error() {} }
const make = (log = mute) => new Notes(log, { wallMs: () => 5 }, () => {})
const read = (notes: Notes) => JSON.parse(notes.json() ?? 'null')

describe('the notes of an attempt', () => {
  it('are nothing until the handler reports something', () => {
    const notes = make()
    notes.log.debug('not kept')
    notes.progress(Number.NaN)
    notes.progress(1, 0)
    expect(notes.json()).toBeUndefined()
  })

  it('have the newest progress, cut to its range', () => {
    const notes = make()
    notes.progress(10)
    expect(read(notes)).toEqual({ progress: [10, 100] })
    notes.progress(500, 400)
    expect(read(notes)).toEqual({ progress: [400, 400] })
    notes.progress(-1, 3)
    expect(read(notes)).toEqual({ progress: [0, 3] })
  })

  it('have the last lines, 100 at most and in 8 KiB, and count those that were dropped', () => {
    const notes = make()
    for (let n = 1; n <= 150; n++) notes.log.info(`line ${n}`, { n })
    expect(read(notes)).toMatchObject({ omitted: 50, log: { length: 100, 0: [5, 'info', 'line 51', { n: 51 }] } })
    for (let n = 1; n <= 100; n++) notes.log.warn('€'.repeat(2_000))
    const { log, omitted } = read(notes)
    expect(log.length + omitted).toBe(250)
    expect(Buffer.byteLength(notes.json() ?? '')).toBeLessThan(8_192 + 100)
  })

  it('have no secrets, and lines that the store can keep whatever is logged', () => {
    const notes = make()
    const circle: Record<string, unknown> = {}
    circle['self'] = circle
    notes.log.info('call with Bearer abcdefgh12345678', { password: 'hunter2', text: 'x'.repeat(9_000) })
    notes.log.error('half \ud83d, and \u0000', { circle, error: new Error('broken') })
    notes.log.warn('an error', { error: new Error('token=abcdefgh12345678') })
    const text = notes.json() ?? ''
    expect(text).not.toMatch(/hunter2|abcdefgh12345678|\\u0000|\\ud83d/)
    expect(text).toContain('not expressible')
    expect(text.length).toBeLessThan(2_500)
  })

  it('still go to the log of the program', () => {
    const lines: unknown[] = []
    const log = { ...mute, info: (message: string, details?: object) => void lines.push([message, details]) }
    make(log).log.info('hello', { a: 1 })
    expect(lines).toEqual([['hello', { a: 1 }]])
  })
})

for (const engine of mainEngines) {
  describe(`progress and log lines on ${engine.name}`, () => {
    const at = emptied(engine)

    it('are seen while the job runs, and kept when it has ended', async () => {
      let end = () => {}
      const over = new Promise<void>((resolve) => (end = resolve))
      const long = task('long', {
        input: tenantInput,
        async run(_, { progress, log }) {
          for (let n = 1; n <= 120; n++) progress(n, 400)
          log.info('half way', { rows: 120 })
          await over
          progress(400, 400)
        },
      })
      const id = await at.sluice.send(long, {})
      const worker = await at.sluice.work([long])
      const shown = async () => (await at.sluice.jobs.get(id)) ?? { progress: null, log: { lines: [] } }
      await until(async () => (await shown()).progress !== null, 'the next round')
      expect(await shown()).toMatchObject({
        state: 'running',
        progress: { done: 120, total: 400 },
        log: { lines: [{ level: 'info', message: 'half way', details: { rows: 120 } }], omitted: 0 },
      })
      end()
      const job = await at.sluice.waitFor(id)
      await worker.stop()
      expect(job).toMatchObject({ state: 'done', progress: { done: 400, total: 400 }, log: { lines: [{}] } })
      expect(job.log.lines[0]?.at).toBeInstanceOf(Date)
    })

    it('do not make a job fail that is done, if texts were cut in the middle of a character', async () => {
      const half = '😀'.slice(0, 1)
      const cut = task('cut', {
        input: tenantInput,
        run(_, { log }) {
          log.info(half, { half })
          log.info('by name', { [half]: 1 })
        },
      })
      const id = await at.sluice.send(cut, {})
      await at.sluice.dispatchOnce([cut])
      expect(await at.sluice.jobs.get(id)).toMatchObject({
        state: 'done',
        log: { lines: [{ message: '\ufffd', details: { half: '\ufffd' } }, { message: 'by name' }] },
      })
    })

    it('are written in one statement for all attempts, and only while the job is in the hands of its claim; a lost worker leaves them', async () => {
      const calls: string[][] = []
      const store = { call: async (_: string, [ids]: [string[]]) => (calls.push(ids), []) }
      const book = new NoteBook()
      const jobs = ['a', 'b', 'c'].map((id) => ({ id, claim: 'x' }))
      for (const job of jobs) {
        const notes = book.open(job as never, mute, { wallMs: () => 1 })
        for (let n = 0; n < 50; n++) notes.progress(n)
      }
      book.close(jobs[2] as never)
      for (let n = 0; n < 2; n++) await book.write(store as never)
      expect(calls).toEqual([['a', 'b']])
      const quiet = task('quiet', { input: tenantInput, run() {} })
      const id = await at.sluice.send(quiet, {})
      const [job] = await claimAll(at.db, at.worker, ['quiet'], 1)
      const record = async (claim: string | undefined, done: number) => {
        const own = new NoteBook()
        own.open({ id, claim } as never, mute, { wallMs: () => 1 }).progress(done, 2)
        await own.write(storeOn(at.db))
      }
      await record(job?.claim, 1)
      await record(id, 2)
      await rescue(at.db, at.worker)
      expect(await at.sluice.jobs.get(id)).toMatchObject({ state: 'waiting', progress: { done: 1, total: 2 } })
    })
  })
}
