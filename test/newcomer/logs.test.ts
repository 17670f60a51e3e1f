/** What a team reads in the log of its first outage, and of its first mistakes. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { logTo } from '../../src/core/log.ts'
import { check, limit, Sluice, task } from '../../src/index.ts'
import { writtenLog } from '../../src/report/format.ts'
import { testSluice } from '../../src/testing/index.ts'
import { createProject, objects, type Project } from '../cli/program.ts'
import { isLong } from '../long.ts'
import { counted, keptLog } from '../report/stage.ts'
import { freshDatabase } from '../servers/database.ts'
import { until } from '../until.ts'

const jobs = 50
/** In the ten minutes of a clock without a circuit, each of which is tried ten times. */
const tried = isLong ? jobs : jobs / 2
let project: Project | undefined
afterEach(() => project?.close())

/** A vendor that answers 503 until `heal`, and counts. */
async function vendor() {
  const calls = new Map<string, number>()
  let refused = 0
  let isWell = false
  const server = createServer(({ url = '' }, response) => {
    calls.set(url, (calls.get(url) ?? 0) + 1)
    if (!isWell) refused++
    response.writeHead(isWell ? 200 : 503).end()
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    calls,
    refused: () => refused,
    heal: () => void (isWell = true),
    close: () => server.close(),
  }
}

describe('a vendor that answers 503 for a while', () => {
  it('fails no job, and the log tells it in a few lines whose counts add up', async () => {
    const at = await vendor()
    const { lines, log } = keptLog()
    const sluice = await Sluice.open({ store: (await freshDatabase()).url, log })
    // Long: for a minute, with the retries that a task has by default.
    const retry = isLong ? {} : { retry: { base: 100, max: '1s' as const } }
    const sync = task('sync', {
      input: z.object({ account: z.string(), contact: z.string() }),
      limits: [limit('crm', { rate: '6000/min', by: 'account' })],
      ...retry,
      run: async ({ contact }, { fetch }) => void (await check(await fetch(`${at.url}/contacts/${contact}`))),
    })
    await sluice.sendMany(
      sync,
      Array.from({ length: jobs }, (_, i) => ({ account: 'a1', contact: `c${i}` })),
    )
    await sluice.work([sync], { concurrency: 20 })
    const sinceMs = performance.now()
    await until(
      () => at.refused() >= 3 * jobs && performance.now() - sinceMs > (isLong ? 60_000 : 0),
      'outage',
      120_000,
    )
    at.heal()
    await until(async () => (await sluice.jobs.status()).done === jobs, 'all jobs are done', 300_000)
    const { failed } = await sluice.jobs.status()
    await sluice.close()
    at.close()

    expect(failed).toBe(0)
    expect(lines.length).toBeLessThanOrEqual(50)
    const failures = lines.filter(({ message }) => message.startsWith('attempt failed, next in '))
    expect(counted(failures)).toBe(at.refused())
    expect(failures[0]).toMatchObject({
      level: 'warn',
      message: expect.stringMatching(/^attempt failed, next in .*\/contacts\/c\d+ answered 503/),
      details: { task: 'sync', job: expect.any(String), attempt: 1, worker: expect.any(String) },
    })
    expect(lines.filter(({ level }) => level === 'error')).toEqual([])
    expect(lines.filter(({ message }) => message.startsWith('"sync" works again, after '))).not.toEqual([])
    if (isLong) expect(Math.max(...at.calls.values())).toBeLessThanOrEqual(12)
  })

  it('for ten minutes of the clock: no job fails, none calls more than 12 times, and one line for each job tells it', async () => {
    const at = await vendor()
    const { lines, log } = keptLog()
    const text: string[] = []
    const written = writtenLog(
      { level: 'info', format: 'text', isTerminal: false },
      (line) => text.push(line),
      Date.now,
    )
    const sync = task('sync', {
      limits: [limit('crm', { rate: '600/min', by: 'account' })],
      run: async ({ contact }: { account: string; contact: string }, { fetch }) =>
        void (await check(await fetch(`${at.url}/contacts/${contact}`))),
    })
    const both = logTo((level, message, details) => {
      log[level](message, details)
      written[level](message, details)
    })
    const t = await testSluice({ tasks: [sync], log: both })
    await sync.sendMany(Array.from({ length: tried }, (_, i) => ({ account: 'a1', contact: `c${i}` })))
    await t.drain({ advance: '10min' })
    const refused = at.refused()
    at.heal()
    await t.drain({ advance: true })
    const { done, failed } = await t.sluice.jobs.status()
    const proof = await t.sluice.verify()
    await t.close()
    at.close()

    expect({ done, failed, isProved: proof.isProved }).toEqual({ done: tried, failed: 0, isProved: true })
    expect(Math.max(...at.calls.values())).toBeLessThanOrEqual(12)
    // Nearly half of the ten minutes is behind the ninth attempt: the vendor really was down.
    expect(refused).toBeGreaterThan(8 * tried)
    const failures = lines.filter(({ message }) => message.startsWith('attempt failed, next in '))
    expect(counted(failures)).toBe(refused)
    expect(text.join('').trimEnd().split('\n').length).toBeLessThanOrEqual(tried)
    const said = text.map((line) => line.split('\n')[0]?.slice('2026-01-01T00:00:00.000Z '.length))
    expect(said[0]).toMatch(
      /^warn {2}attempt failed, next in \S+ m?s: .*\/contacts\/c\d+ answered 503\b.* task=sync job=\S+ attempt=1 /,
    )
    expect(said.at(-1)).toMatch(/^warn {2}"sync" works again, after \d+ failures in 1\d min {2}/)
    expect(said.filter((line) => !/^warn {2}(attempt failed, next in|"sync" works again)/.test(line ?? ''))).toEqual([])
  }, 300_000)

  it('with a circuit for ten minutes of the clock: no job fails, and hardly more than one request tries it at a time', async () => {
    const at = await vendor()
    const { lines, log } = keptLog()
    const sync = task('sync', {
      limits: [limit('crm', { rate: '600/min', by: 'account', circuit: true })],
      run: async ({ contact }: { account: string; contact: string }, { fetch }) =>
        void (await check(await fetch(`${at.url}/contacts/${contact}`))),
    })
    const t = await testSluice({ tasks: [sync], log })
    await sync.sendMany(Array.from({ length: jobs }, (_, i) => ({ account: 'a1', contact: `c${i}` })))
    await t.drain({ advance: '10min' })
    const refused = at.refused()
    at.heal()
    await t.drain({ advance: true })
    const { done, failed } = await t.sluice.jobs.status()
    await t.close()
    at.close()
    expect({ done, failed }).toEqual({ done: jobs, failed: 0 })
    expect(refused).toBeGreaterThan(10)
    expect(refused).toBeLessThan(2 * jobs)
    expect(lines.length).toBeLessThanOrEqual(50)
  }, 300_000)
})

const program = `
import { Sluice, task } from 'sluice'
import { z } from 'zod'
const typo = task('typo', {
  input: z.object({}), retry: { attempts: 2, base: 1, max: 1 },
  run: (_, { log, attempt }) => { log.info('begun'); undefined.contact },
})
const sluice = await Sluice.open()
const id = await sluice.send(typo, {})
await sluice.work([typo])
await sluice.waitFor(id)
await sluice.close()
`

it('a program without a logger writes failures to stderr, with their stacks, and nothing else', async () => {
  project = createProject({ DATABASE_URL: (await freshDatabase()).url })
  project.write('package.json', '{"type":"module"}')
  const main = new URL('../../dist/index.js', import.meta.url)
  project.write('app.mjs', program.replace("'sluice'", `'${main.href}'`))
  const own = createProject({ DATABASE_URL: (await freshDatabase()).url }, `${project.dir}/app.mjs`)
  const { code, err, out } = await own.run([])
  await own.close()
  expect({ code, out }).toEqual({ code: 0, out: '' })
  const lines = err
    .trimEnd()
    .split('\n')
    .filter((line) => !line.startsWith(' '))
  expect(lines).toEqual([
    expect.stringMatching(/^\S+Z warn {2}attempt failed, next .*'contact'.* task=typo job=\S+ attempt=1 worker=\d+$/),
    expect.stringMatching(/^\S+Z error job failed for good \(no attempts left, attempt 2\): .*'contact'/),
  ])
  expect(err).toMatch(/\n {2}TypeError: .*\n {4}at .*app\.mjs/)
})

it('`work` writes what handlers log with their job, as text, or as JSON with the names of pino', async () => {
  project = createProject({ DATABASE_URL: (await freshDatabase()).url })
  project.write(
    'tasks.ts',
    `import { task } from 'sluice'
import { z } from 'zod'
export const greet = task('greet', {
  input: z.object({ n: z.number() }),
  run: ({ n }, { log }) => log.info('greeting', { n, err: new Error('not so bad') }),
})`,
  )
  project.write('sluice.config.ts', `export default { on: { done: ({ task }) => console.log('heard', task) } }`)
  const env = { SLUICE_TASKS: 'tasks.ts' }
  const text = await project.run(['send', 'greet', '{"n":1}', '--repeat', '3'], { env })
  expect(text).toMatchObject({ code: 0, out: '3 sent\n' })
  const dispatch = (...flags: string[]) => project?.run(['dispatch', '--once', '--max', '1', ...flags], { env })
  const json = await dispatch('--json')
  expect(json?.out).toBe('heard greet\n{"dispatched":1}\n')
  expect(objects(json?.err ?? '')).toEqual([
    {
      level: 30,
      time: expect.any(Number),
      pid: expect.any(Number),
      hostname: expect.any(String),
      n: 1,
      err: expect.objectContaining({ type: 'Error', message: 'not so bad', stack: expect.any(String) }),
      task: 'greet',
      job: expect.stringMatching(/^[0-9a-f-]{36}$/),
      attempt: 1,
      worker: expect.any(String),
      msg: 'greeting',
    },
  ])
  const lines = (await dispatch())?.err ?? ''
  expect(lines).toMatch(
    /^\S+Z info {2}greeting {2}n=1 task=greet job=[0-9a-f-]{36} attempt=1 worker=\d+\n {2}Error: not/,
  )
  expect((await dispatch('--log-level', 'warn'))?.err).not.toContain('greeting')
})
