import { join } from 'node:path'
import { expect, it, type TestContext } from 'vitest'
import { Sluice } from '../../src/sluice.ts'
import { emptyDatabase, freshDatabase } from '../servers/database.ts'
import { until } from '../until.ts'
import { createProject, objects, type Ran, tasksFile } from './program.ts'

/** A database and a directory of one test's own, and what commands there return. */
async function openProject({ onTestFinished }: Pick<TestContext, 'onTestFinished'>) {
  const { url } = await freshDatabase()
  await (await Sluice.open({ store: url })).close()
  const project = createProject({ DATABASE_URL: url })
  onTestFinished(() => project.close())
  project.write('tasks.ts', tasksFile)
  project.write(
    'sluice.config.ts',
    `import { defineConfig } from 'sluice'
import * as tasks from './tasks.ts'
export default defineConfig({ store: 'not-used', concurrency: 3, tasks: [tasks.syncContact, tasks.plain, tasks.fails] })`,
  )

  async function send(...args: string[]): Promise<string> {
    const ran = ok(await project.run(['send', ...args]))
    expect(ran.out).toMatch(/^([0-9a-f-]{36}|\d+ sent)\n$/)
    return ran.out.trim()
  }

  /** A cold process may return a grant that is too old, and its job, so once is not always enough. */
  async function dispatchAll(): Promise<void> {
    const haveAllEnded = async () => {
      ok(await project.run(['dispatch', '--once']))
      const [left] = objects((await project.runWarm(['status', '--json'])).out) as [
        { waiting: number; scheduled: number },
      ]
      return left.waiting === 0 && left.scheduled === 1
    }
    // Each look is a process that loads the tasks.
    await until(haveAllEnded, 'all jobs have ended', 240_000)
  }

  async function doctorLine(check: string): Promise<Record<string, unknown>> {
    const lines = objects((await project.runWarm(['doctor', '--json'])).out)
    return lines.find((line) => line['check'] === check) ?? {}
  }
  return { project, url, send, dispatchAll, doctorLine }
}

it.concurrent('what a command suggests is on the store that its flags name, and the schema is named', async (context) => {
  const { project, url } = await openProject(context)
  await (await Sluice.open({ store: url, schema: 'staging' })).close()
  const flags = ['--schema', 'staging', '--config', 'sluice.config.ts']
  const sent = await project.runWarm(['send', 'http', '{"url":"https://x.example"}', ...flags])
  const why = /`sluice (.* why .*)` shows/.exec(sent.err)?.[1] ?? ''
  expect(why).toBe(`${flags.join(' ')} why ${sent.out.trim()}`)
  expect(ok(await project.runWarm(why.split(' '))).out).toContain('waiting')
  expect((await project.runWarm(['status', ...flags])).err).toMatch(/\/\w+ \(schema staging\)\nnext: /)
  // The URL has a password.
  expect((await project.runWarm(['jobs', '--store', url])).err).toContain(
    'next: `sluice --store <its URL> jobs --state done`',
  )
  const mistaken = await project.runWarm(['resume', '--queue', 'q', '--store', url])
  expect(mistaken).toMatchObject({ code: 1, err: expect.stringContaining('`sluice --store <its URL> ') })
})

it.concurrent('an error of a role, or of a server that only reads, names what to do', async (context) => {
  const { project, url } = await openProject(context)
  const send = (env: Record<string, string>) => project.run(['send', 'http', '{"url":"https://x.example"}'], { env })
  const reader = new URL(url)
  reader.searchParams.set('options', '-c default_transaction_read_only=on')
  const replica = await send({ DATABASE_URL: reader.href })
  expect(replica).toMatchObject({
    code: 1,
    err: expect.stringContaining('DATABASE_URL has to name the primary server'),
  })
  const sluice = await Sluice.open({ store: url })
  await sluice.db.script('revoke insert on sluice.job from current_user')
  await sluice.close()
  expect(await send({})).toMatchObject({
    code: 2,
    err: expect.stringMatching(/^error SLUICE_NO_PRIVILEGE: .* run `sluice migrate` and `sluice prune` as the owner/),
  })
})

it.concurrent('migrate prints its plan, carries it out, and then has nothing to do, and doctor reports the difference', async (context) => {
  const { project } = await openProject(context)
  const env = { DATABASE_URL: (await emptyDatabase()).url }
  const run = (args: string[]) => project.run(args, { env })
  const before = await run(['doctor', '--json'])
  expect(before.code).toBe(1)
  expect(objects(before.out)).toContainEqual({
    check: 'schema',
    status: 'fail',
    text: expect.stringContaining('sluice migrate'),
  })

  // Commands that only read change nothing.
  expect(await run(['status'])).toMatchObject({ code: 2, err: expect.stringContaining('SLUICE_NOT_MIGRATED') })

  const dry = await run(['migrate', '--dry-run'])
  expect(dry).toMatchObject({ code: 0, out: expect.stringMatching(/^-- 0001_store[^]*create table sluice\.job /) })
  const names = objects((await run(['migrate', '--dry-run', '--json'])).out).map((step) => step['name'])
  expect(objects((await run(['migrate', '--json'])).out)).toEqual([{ applied: names }])
  expect(await run(['migrate', '--dry-run'])).toMatchObject({ code: 0, out: '' })

  const after = await run(['doctor', '--json'])
  expect(after).toMatchObject({ code: 0, err: '' })
  const found = Object.fromEntries(objects(after.out).map(({ check, status }) => [check, status]))
  expect(found).toMatchObject({
    connection: 'ok',
    server: 'ok',
    schema: 'ok',
    partitions: 'ok',
    snapshots: 'ok',
    bloat: 'ok',
    wraparound: 'ok',
    pooler: 'ok',
    connections: 'ok',
    clock: 'ok',
    listen: 'ok',
    workers: 'warn',
  })
})

it.concurrent('a sequence of send, dispatch --once, jobs, why, status, limits, retry and cancel works on one server', async (context) => {
  const { project, send, dispatchAll } = await openProject(context)
  const sent = await project.run([
    'send',
    'sync-contact',
    '{"accountId":"a1"}',
    '--repeat',
    '3',
    '--tag',
    'batch',
    '--json',
  ])
  expect(sent).toMatchObject({ code: 0, err: '' })
  expect(new Set(objects(sent.out).map(({ id }) => id)).size).toBe(3)
  const id = await send('sync-contact', '{"accountId":"a2"}', '--delay', '1h')
  expect(await send('plain', '{"n":1}', '--idempotency-key', 'once')).toBe(
    await send('plain', '{"n":1}', '--idempotency-key', 'once'),
  )
  const replaced = await send('plain', '{"n":2}', '--idempotency-key', 'last', '--delay', '1h', '--max-wait', '2h')
  expect(await send('plain', '{"n":3}', '--idempotency-key', 'last', '--replace')).toBe(replaced)
  const failing = await send('fails')

  expect(await project.runWarm(['why', 'x'])).toMatchObject({ code: 2, err: expect.stringContaining('SLUICE_BAD_ID') })
  expect(objects((await project.runWarm(['jobs', '--tag', 'batch', '--json'])).out)).toMatchObject([
    { state: 'waiting', task: 'sync-contact' },
    {},
    {},
  ])
  const page = await project.runWarm(['jobs', '--tag', 'batch', '--task', 'sync-contact', '--max', '1'])
  expect(page.err).toMatch(/sluice jobs --task sync-contact --tag batch --max 1 --before \S{36}` for older ones/)
  const table = await project.runWarm(['jobs', '--max', '2'])
  expect(table.out.split('\n')).toHaveLength(4)
  expect(table.err).toContain(`--before `)
  const why = await project.runWarm(['why', id])
  expect(why.out).toMatch(/^scheduled {2}\S+\n[^]*^- scheduled for later\n {4}not before .* \(in (5\d|60) min\)$/m)
  expect(objects((await project.runWarm(['why', id, '--json'])).out)).toMatchObject([
    { id, state: 'scheduled', reasons: expect.arrayContaining([expect.objectContaining({ kind: 'delay' })]) },
  ])
  expect(objects((await project.runWarm(['limits', '--json'])).out)).toMatchObject([
    {
      name: 'crm',
      version: 1,
      rates: ['100/min'],
      keyed: true,
      path: 'accountId',
      marginMs: 200,
      guarantees: [{ worst: 100 }],
    },
  ])

  await dispatchAll()
  expect(objects((await project.run(['dispatch', '--once', '--max', '1', '--json'])).out)).toEqual([{ dispatched: 0 }])
  expect(objects((await project.runWarm(['jobs', 'show', failing, '--json'])).out)).toMatchObject([
    { id: failing, state: 'failed', reason: 'exhausted', attempt: 1, error: { message: 'the vendor said 500' } },
  ])
  const shown = (await project.runWarm(['jobs', 'show', failing])).out
  expect(shown).toMatch(/Error: the vendor said 500\n +at .*tasks\.ts/)
  expect(shown).not.toMatch(/at .*(node:internal|sluice\.js|chunks)/)
  expect((await project.runWarm(['why', failing])).out).toMatch(
    /^failed \(exhausted\) at \S+ after 1 attempt; last error: the vendor said 500$/m,
  )
  expect(objects((await project.runWarm(['status', '--json'])).out)).toMatchObject([
    { waiting: 0, scheduled: 1, running: 0, failed: 1, workers: 0, oldestWaitingMs: null, countedTo: 10_000 },
  ])

  expect(await project.runWarm(['retry', failing, id])).toMatchObject({
    code: 1,
    out: `${failing} retried\n`,
    err: expect.stringContaining(
      `${id} is scheduled: only failed jobs, and those that wait for another attempt, can be retried`,
    ),
  })
  expect(objects((await project.runWarm(['cancel', id, failing, '--json'])).out)).toEqual([
    { id, cancelled: true },
    { id: failing, cancelled: true },
  ])
  const over = `${id} is cancelled: only unfinished jobs can be cancelled`
  expect(await project.runWarm(['cancel', id])).toMatchObject({ code: 1, out: '', err: expect.stringContaining(over) })
  const unknown = await project.runWarm(['jobs', 'show', id.replace(/.$/, (last) => (last === '0' ? '1' : '0'))])
  expect(unknown).toMatchObject({ code: 1, out: '', err: expect.stringMatching(/^error SLUICE_NO_SUCH_JOB: /) })
}, 300_000)

it.concurrent('work runs jobs, survives stray rejections, and lets attempts end on SIGTERM', async (context) => {
  const { project, send, doctorLine } = await openProject(context)
  const worker = project.start(['work', 'tasks.ts', '--queues', 'default,slow'])
  await worker.says(', queues default, slow, ')
  await send('stray', '{}', '--tasks', 'tasks.ts')
  await worker.says('nobody looks')
  const id = await send('gate', '{}', '--tasks', 'tasks.ts')
  await worker.says('begun')
  expect((await project.runWarm(['why', id])).out).toMatch(/^running since /)
  await until(async () => (await doctorLine('workers'))['status'] === 'ok')
  worker.signal('SIGTERM')
  await worker.says('stopping: waiting for 1 running job')
  project.write('open', '')
  expect(await worker.ended).toMatchObject({ code: 0, out: '', err: expect.stringMatching(/stopped\n$/) })
  expect(objects((await project.runWarm(['jobs', 'show', id, '--json'])).out)).toMatchObject([
    { state: 'done', attempt: 1 },
  ])
})

it.concurrent('limits shows that the key of a limit is a function', async (context) => {
  const { project, send } = await openProject(context)
  project.write(
    'hosts.ts',
    `import { httpTask, limit } from 'sluice'
export const hooks = httpTask('hooks', { limits: [limit('hosts', { rate: '5/s', by: ({ url }) => new URL(url).host })] })`,
  )
  await send('hooks', '{"url":"http://127.0.0.1:1"}', '--delay', '1h', '--tasks', 'hosts.ts')
  expect((await project.run(['limits'])).out).toContain('hosts  5/s, for each key (a function of the input)')
})

it.concurrent('work gives up its attempts on a second signal, and their jobs are not lost', async (context) => {
  const { project, send } = await openProject(context)
  const worker = project.start(['work', 'tasks.ts', '-c', '1'], { env: { SLUICE_QUEUES: 'slow' } })
  await worker.says('working on')
  const id = await send('stuck', '{}', '--tasks', 'tasks.ts', '--queue', 'slow')
  await worker.says('begun')
  worker.signal('SIGINT')
  await worker.says('stopping: waiting for 1 running job')
  worker.signal('SIGINT')
  expect(await worker.ended).toMatchObject({ code: 0 })
  expect(objects((await project.runWarm(['jobs', 'show', id, '--json'])).out)).toMatchObject([
    { state: expect.stringMatching(/waiting|scheduled/) },
  ])
})

it.concurrent('work ends on a second signal even when a handler ignores its abort signal and never ends', async (context) => {
  const { project, send } = await openProject(context)
  project.write(
    'deaf.ts',
    `import { task } from 'sluice'
import { z } from 'zod'
export const deaf = task('deaf', {
  input: z.object({}),
  run: (_, { log }) => new Promise(() => { log.info('begun'); setInterval(() => {}, 10) }),
})`,
  )
  const worker = project.start(['work', 'deaf.ts'])
  await worker.says('working on')
  const id = await send('deaf', '{}', '--tasks', 'deaf.ts')
  await worker.says('begun')
  worker.signal('SIGTERM')
  await worker.says('stopping: waiting for 1 running job')
  worker.signal('SIGTERM')
  expect(await worker.ended).toMatchObject({ code: 0 })
  expect(objects((await project.runWarm(['jobs', 'show', id, '--json'])).out)).toMatchObject([
    { state: expect.stringMatching(/waiting|scheduled/), ambiguous: true },
  ])
})

it.concurrent('dispatch --once lets attempts end on SIGTERM, and takes no more jobs', async (context) => {
  const { project, send } = await openProject(context)
  const args = ['--tasks', 'tasks.ts', '--queue', 'own']
  await send('gate', '{}', '--repeat', '2', ...args)
  const once = project.start(['dispatch', '--once', '--tasks', 'tasks.ts', '--queues', 'own', '-c', '1'])
  await once.says('begun')
  once.signal('SIGTERM')
  await once.says('stopping: waiting for the running jobs')
  project.write('open', '')
  expect(await once.ended).toMatchObject({ code: 0, out: '1\n' })
})

it.concurrent('a script that only sends ends when it has sent', async (context) => {
  const { project, url } = await openProject(context)
  const sluice = new URL('../../dist/index.js', import.meta.url).href
  project.write(
    'only.mjs',
    `import { task } from '${sluice}'
import { z } from 'zod'
console.log((await task('only', { input: z.object({}), run: () => 1 }).send({})).length)`,
  )
  const script = createProject({ DATABASE_URL: url }, join(project.dir, 'only.mjs'))
  expect(await script.run([])).toMatchObject({ code: 0, out: '36\n', err: '' })
  await script.close()
})

function ok(ran: Ran): Ran {
  expect(ran).toMatchObject({ code: 0 })
  return ran
}

it.concurrent('dev gives its options to its worker', async (context) => {
  const { project } = await openProject(context)
  const dev = project.start(['dev', '--celery', 'celery'])
  await dev.says('the worker ended (2)')
  dev.signal('SIGINT')
  expect(await dev.ended).toMatchObject({ code: 0, err: expect.stringContaining('error SLUICE_NO_BROKER') })
})
