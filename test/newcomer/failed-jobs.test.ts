// What a team does with failed jobs after the cause is found: give them up, or correct and send them again.
import { afterAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { limit, Sluice, task } from '../../src/index.ts'
import { createProject, objects } from '../cli/program.ts'
import { emptied, mainEngines } from '../claim/engine.ts'
import { freshDatabase } from '../servers/database.ts'

const few = limit('few', { rate: '1000/min', by: 'account' })
const seen: unknown[] = []
const strictInput = z.object({ account: z.string(), n: z.number() })
const strict = task('strict', {
  input: strictInput,
  limits: [few],
  retry: { attempts: 1 },
  run(input) {
    seen.push(input)
    if (input.n < 0) throw new Error('n is negative')
  },
})

for (const engine of mainEngines) {
  describe(`failed jobs on ${engine.name}`, () => {
    const at = emptied(engine)

    /** Sends jobs that fail; resolves to their ids. */
    async function failing(...ns: number[]): Promise<string[]> {
      const ids = await Promise.all(ns.map((n) => at.sluice.send(strict, { account: 'a', n })))
      await at.sluice.dispatchOnce([strict])
      return ids
    }

    it('are sent again with a corrected input, which the task checks, and whose limits follow from it', async () => {
      const [id = ''] = await failing(-1)
      const { jobs } = at.sluice
      await expect(jobs.retryWith(id, { account: 'b' }, strict)).rejects.toMatchObject({ code: 'SLUICE_INVALID_INPUT' })
      const other = task('other', { input: z.unknown(), run() {} })
      await expect(jobs.retryWith(id, {}, other)).rejects.toMatchObject({ code: 'SLUICE_OTHER_TASK' })
      expect((await jobs.get(id))?.state).toBe('failed')
      // A renamed task is still the job's.
      const renamed = task('renamed', { input: strictInput, limits: [few], formerly: ['strict'], run() {} })
      await expect(jobs.retryWith(id, { account: 'b' }, renamed)).rejects.toMatchObject({
        code: 'SLUICE_INVALID_INPUT',
      })
      expect(await jobs.retryWith(id, { account: 'b', n: 5 }, renamed)).toBe(true)
      expect(await jobs.retryWith(id, { account: 'b', n: 5 }, strict)).toBe(false)
      // The first claim only finds out which limits the job needs now.
      for (let n = 0; n < 2; n++) await at.sluice.dispatchOnce([strict])
      expect(await jobs.get(id)).toMatchObject({ state: 'done', attempt: 2, limits: ['few:b'], input: { n: 5 } })
      expect(seen.at(-1)).toEqual({ account: 'b', n: 5 })
      expect((await jobs.get(id))?.attempts.map(({ outcome }) => outcome)).toEqual(['failed', 'done'])
    })

    it('leave a key that was given to their old input when they get another one', async () => {
      const { jobs, limits, pause, resume } = at.sluice
      await at.sluice.define([strict])
      await pause({ task: 'strict*' }, { reason: 'test' })
      const id = await at.sluice.send(strict, { account: 'a', n: -1 })
      expect(await limits.rekey('few', { from: 'a', to: 'a-eu' })).toBe(1)
      await resume({ task: 'strict*' })
      await at.sluice.dispatchOnce([strict])
      expect(await jobs.get(id)).toMatchObject({ state: 'failed', limits: ['few:a-eu'] })
      await jobs.retryWith(id, { account: 'b', n: 5 })
      for (let n = 0; n < 2; n++) await at.sluice.dispatchOnce([strict])
      expect(await jobs.get(id)).toMatchObject({
        state: 'done',
        limits: ['few:b'],
        ruled: [{ rule: 'limits rekey' }],
      })
    })

    it('are checked by a worker where their task is not known', async () => {
      const [id = ''] = await failing(-1)
      expect(await at.sluice.jobs.retryWith(id, { account: 7 })).toBe(true)
      await at.sluice.dispatchOnce([strict])
      expect(await at.sluice.jobs.get(id)).toMatchObject({
        state: 'failed',
        reason: 'refused',
        error: { code: 'SLUICE_INVALID_INPUT' },
      })
    })

    it('are discarded by id or filter, and keep their records', async () => {
      const ids = await failing(-1, -2, -3)
      const { jobs } = at.sluice
      expect(await jobs.discard(ids[0] ?? '', 'the customer left')).toBe(true)
      expect(await jobs.discard(ids[0] ?? '')).toBe(false)
      expect(await jobs.retry(ids[0] ?? '')).toBe(false)
      expect(await jobs.get(ids[0] ?? '')).toMatchObject({
        state: 'cancelled',
        reason: 'the customer left',
        input: { n: -1 },
        error: { message: 'n is negative' },
        attempts: [{ outcome: 'failed' }],
      })
      await expect(jobs.discardMany({})).rejects.toMatchObject({ code: 'SLUICE_EMPTY_FILTER' })
      await expect(jobs.discardMany({ state: 'waiting' })).rejects.toMatchObject({ code: 'SLUICE_BAD_FILTER' })
      expect(await jobs.discardMany({ error: 'negative' })).toBe(2)
      expect(await jobs.status()).toMatchObject({ failed: 0 })
    })
  })
}

describe('on the command line', () => {
  const project = createProject({ SLUICE_TASKS: 'tasks.ts' })
  afterAll(() => project.close())

  it('failed jobs are found, previewed, corrected and discarded', async () => {
    const env = { DATABASE_URL: (await freshDatabase()).url }
    const run = (...args: string[]) => project.run(args, { env })
    project.write(
      'tasks.ts',
      `import { task } from 'sluice'
import { z } from 'zod'
export const strict = task('strict', {
  input: z.object({ n: z.number() }),
  retry: { attempts: 1 },
  run({ n }, { log, progress }) {
    log.info('begun', { n })
    progress(1, 2)
    if (n < 0) throw Object.assign(new Error('n is negative'), { code: 'E_NEGATIVE' })
  },
})`,
    )
    const sluice = await Sluice.open({ store: env.DATABASE_URL })
    const plain = task('strict', { input: z.unknown(), run() {} })
    const ids = await Promise.all([-1, -2, -3].map((n) => sluice.send(plain, { n })))
    const [id = ''] = ids
    expect(await run('dispatch', '--once')).toMatchObject({ code: 0 })
    const found = await run('jobs', '--state', 'failed', '--error-code', 'E_NEGATIVE', '--failures', '1', '--json')
    expect(objects(found.out)).toHaveLength(3)
    expect((await run('jobs', '--state', 'failed', '--dispatched-until', '1h')).out).toBe('')

    const shown = (await run('jobs', 'show', id)).out
    for (const text of ['failed (exhausted)', 'code E_NEGATIVE', 'info  begun {"n":-1}', '50 % (1 of 2)'])
      expect(shown).toContain(text)

    expect(await run('jobs', 'edit', id, '{"n":"x"}')).toMatchObject({
      code: 2,
      err: expect.stringContaining('SLUICE_INVALID_INPUT'),
    })
    expect(await run('jobs', 'edit', id, '{"n":1}', '--dry-run')).toMatchObject({
      code: 0,
      out: `${id} would be retried with this input\n`,
    })
    expect(await run('jobs', 'edit', id, '{"n":1}')).toMatchObject({
      code: 0,
      out: `${id} retried with its new input\n`,
    })
    expect(await run('jobs', 'edit', id, '{"n":1}')).toMatchObject({
      code: 1,
      err: expect.stringContaining('SLUICE_NOT_FAILED'),
    })
    expect(await run('dispatch', '--once')).toMatchObject({ code: 0 })
    expect((await sluice.jobs.get(id))?.state).toBe('done')

    const filter = ['--task', 'strict', '--error-code', 'E_NEGATIVE']
    const preview = await run('jobs', 'discard', ...filter, '--dry-run')
    expect(preview).toMatchObject({
      code: 0,
      out: '2 jobs would be discarded\n',
      err: expect.stringContaining(ids[1] ?? '-'),
    })
    expect(await run('jobs', 'discard', ...filter)).toMatchObject({
      code: 2,
      err: expect.stringContaining('SLUICE_NOT_CONFIRMED'),
    })
    expect(await run('jobs', 'discard', ids[1] ?? '')).toMatchObject({ code: 0, out: `${ids[1]} discarded\n` })
    expect(await run('jobs', 'discard', ...filter, '--yes')).toMatchObject({ code: 0, out: '1 discarded\n' })
    expect((await sluice.jobs.status()).failed).toBe(0)
    await sluice.close()
  }, 300_000)
})
