import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it, type TestContext } from 'vitest'
import { until } from '../until.ts'
import { createProject, objects, tasksFile } from './program.ts'

const input = '{"accountId":"a1","contactId":"7"}'

/** A project of one test's own, and what two of its commands return. */
function openProject({ onTestFinished }: Pick<TestContext, 'onTestFinished'>) {
  const project = createProject()
  onTestFinished(() => project.close())
  const doctor = async () => objects((await project.run(['doctor', '--json'])).out)
  /** Waits until a job is done, by a command that reads it: that goes through the owner too. */
  async function ended(id: string): Promise<void> {
    for (;;) {
      const [job] = objects((await project.runWarm(['jobs', 'show', id, '--json'])).out)
      expect(['waiting', 'scheduled', 'running', 'done']).toContain(job?.['state'])
      if (job?.['state'] === 'done') return
    }
  }
  return { project, doctor, ended }
}

it.concurrent('init writes a project once, and lists beforehand what it would write', async (context) => {
  const { project } = openProject(context)
  const dry = await project.run(['init', '--dry-run'])
  expect(dry.code).toBe(0)
  expect(await project.run(['init'])).toMatchObject({
    code: 0,
    out: dry.out,
    err: expect.stringContaining('sluice dev'),
  })
  const written = readFileSync(join(project.dir, 'tasks.ts'), 'utf8')
  project.write('tasks.ts', '// mine')
  expect(await project.run(['init'])).toMatchObject({ code: 2, err: expect.stringContaining('SLUICE_FILE_EXISTS') })
  expect(readFileSync(join(project.dir, 'tasks.ts'), 'utf8')).toBe('// mine')
  expect(await project.run(['init', '--yes'])).toMatchObject({ code: 0 })
  expect(readFileSync(join(project.dir, 'tasks.ts'), 'utf8')).toBe(written)
})

it.concurrent('dev runs jobs of other processes, restarts its worker on save and ends on Ctrl-C, and afterwards commands open the directory', async (context) => {
  const { project, doctor, ended } = openProject(context)
  await project.runWarm(['init'])
  const dev = project.start(['dev'])
  await dev.says('working on sync-contact')
  const sent = await project.run(['send', 'sync-contact', input, '--repeat', '3', '--json'])
  expect(sent).toMatchObject({ code: 0, err: '' })
  const ids = objects(sent.out).map(({ id }) => String(id))
  for (const id of ids) await ended(id)
  // What runs, and how full limits are; on a terminal the latter are bars.
  for (const text of ['info  started  task=sync-contact job=', 'info  done in ', 'info  limits: crm for '])
    await dev.says(text)

  project.write('tasks.ts', 'export const = 1')
  await dev.says('tasks.ts cannot be loaded')
  const before = dev.err().length
  project.write('tasks.ts', tasksFile)
  await dev.says('working on fails, gate')
  expect(dev.err().slice(before)).toContain('the worker restarts')
  expect(objects((await project.run(['jobs', '--state', 'done', '--json'])).out)).toHaveLength(3)
  // The command waits 5 s for its listener, which a busy machine may use up.
  await until(async () => (await doctor()).every(({ status }) => status === 'ok'))

  await project.run(['send', 'stuck'])
  await dev.says('begun')
  dev.signal('SIGINT')
  await dev.says('stopping: waiting for 1 running job')
  dev.signal('SIGINT')
  expect(await dev.ended).toMatchObject({ code: 0, out: '' })

  expect(objects((await project.run(['jobs', '--state', 'done', '--json'])).out)).toHaveLength(3)
  const text = expect.stringContaining('is on the disk before it returns') as string
  expect(await doctor()).toContainEqual({ check: 'disk', status: 'ok', text })
}, 300_000)

it.concurrent('a worker takes the place of the process that owned the directory and was killed, and closes the store when it ends', async (context) => {
  const { project, ended } = openProject(context)
  await project.runWarm(['init'])
  const owner = project.start(['work'])
  await owner.says('working on sync-contact')
  const other = project.start(['work'])
  await other.says('working on sync-contact')
  owner.signal('SIGKILL')
  await owner.ended
  await other.says('has ended; this process owns it now')
  const [sent] = objects((await project.run(['send', 'sync-contact', input, '--json'])).out)
  await ended(String(sent?.['id']))
  other.signal('SIGTERM')
  // With nothing left to run, nothing has to be waited for or abandoned.
  expect(await other.ended).toMatchObject({ code: 0, err: expect.not.stringContaining('running attempt') })
  expect(objects((await project.run(['jobs', '--state', 'done', '--json'])).out)).toHaveLength(1)
}, 300_000)

it.concurrent('a script that only sends ends while a worker uses its store, and the worker takes its place', async (context) => {
  const { project } = openProject(context)
  await project.runWarm(['init'])
  const index = new URL('../../dist/index.js', import.meta.url).href
  project.write(
    'send.mjs',
    `import fs from 'node:fs'
    import { task } from '${index}'
    await task('sync-contact', { run: () => undefined }).send(${input})
    const watcher = fs.watch('.', (_, name) => name === 'go' && watcher.close())
    console.error('sent')`,
  )
  const store = join(project.dir, '.sluice/data')
  const sender = createProject({ DATABASE_URL: store }, join(project.dir, 'send.mjs'))
  context.onTestFinished(() => sender.close())
  const script = sender.start([])
  await script.says('sent')
  const worker = project.start(['work'])
  await worker.says('working on sync-contact')
  sender.write('go', '')
  expect(await script.ended).toMatchObject({ code: 0 })
  await worker.says('has ended; this process owns it now')
}, 300_000)

it.concurrent.for(['work', 'dev'])(
  '%s whose store ends for good ends with exit code 3',
  { timeout: 300_000 },
  async (command, context) => {
    const { project } = openProject(context)
    await project.runWarm(['init'])
    project.write(
      'break.mjs',
      `import fs from 'node:fs'
    const sync = fs.fdatasyncSync
    fs.fdatasyncSync = (fd) => {
      if (fs.existsSync('broken')) throw new Error('the disk is full')
      sync(fd)
    }`,
    )
    const run = project.start([command], { env: { NODE_OPTIONS: '--import=./break.mjs' } })
    await run.says('working on sync-contact')
    project.write('broken', '')
    expect(await run.ended).toMatchObject({ code: 3, err: expect.stringContaining('the disk is full') })
  },
)
