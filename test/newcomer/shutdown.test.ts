/** Workers end: below the processes that containers start, where only the first gets SIGTERM, and in a program that closes. */
import { execFile, spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { Sluice } from '../../src/index.ts'
import { createProject } from '../cli/program.ts'
import { freshDatabase } from '../servers/database.ts'
import { later, until } from '../until.ts'
import { createNewcomer } from './newcomer.ts'
import { brief } from '../v8.ts'

const main = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url))
const work = `exec "${process.execPath}" ${brief.join(' ')} "${main}" work tasks.ts --grace 100ms --log-level info`

it('a worker gives back what still runs when its grace is over, below sh and below npm', async ({ onTestFinished }) => {
  const { url } = await freshDatabase()
  const sluice = await Sluice.open({ store: url })
  const project = createProject()
  onTestFinished(async () => {
    await sluice.close()
    await project.close()
  })
  project.write('package.json', JSON.stringify({ private: true, scripts: { work } }))
  project.write(
    'tasks.ts',
    `import { task } from 'sluice'
export const deaf = task('deaf', {
  input: { '~standard': { version: 1, vendor: 'test', validate: (value) => ({ value }) } },
  run: (_, { log }) => new Promise(() => { log.info('begun'); setInterval(() => {}, 10) }),
})`,
  )
  const trees = [
    ['sh', '-c', work],
    ['npm', 'run', '--silent', 'work'],
  ]
  const states = trees.map(async ([command = '', ...args]) => {
    const first = spawn(command, args, { cwd: project.dir, env: { ...process.env, DATABASE_URL: url } })
    let err = ''
    first.stderr.on('data', (chunk) => (err += String(chunk)))
    const ended = later(new Promise<void>((resolve) => void first.once('close', () => resolve())))
    onTestFinished(() => void first.kill('SIGKILL'))
    await until(() => err.includes('working on deaf'), 'it works', 60_000)
    await sluice.db.query(`select sluice.send('deaf', '{}')`)
    await until(() => err.includes('begun'), 'it runs', 60_000)
    first.kill('SIGTERM')
    await ended
    expect(err).toContain('attempts that still run are given back')
    expect(err).toMatch(/stopped\n$/)
  })
  for (const state of states) await state
  expect((await sluice.jobs.status()).workers).toBe(0)
  expect(await sluice.db.query('select ambiguous, claim from sluice.job')).toEqual(
    trees.map(() => ({ ambiguous: true, claim: null })),
  )
})

it('the log names process.exit() as what ended a worker during an attempt', async ({ onTestFinished }) => {
  const project = createProject({ DATABASE_URL: (await freshDatabase()).url, SLUICE_TASKS: 'tasks.mjs' })
  onTestFinished(() => project.close())
  const exits = `task('exits', { run: () => process.exit(7) })`
  project.write('tasks.mjs', `import { task } from 'sluice'\nexport const exits = ${exits}`)
  expect(await project.run(['send', 'exits', '{}'])).toMatchObject({ code: 0 })
  const { code, err } = await project.start(['work']).ended
  expect(err).toContain('the process exits with code 7 during 1 attempt')
  expect(code).toBe(7)
})

it('a promise that nobody awaits does not end a worker, also where Node is strict about that', async ({
  onTestFinished,
}) => {
  const project = createProject({
    DATABASE_URL: (await freshDatabase()).url,
    SLUICE_TASKS: 'tasks.mjs',
    NODE_OPTIONS: '--unhandled-rejections=strict',
  })
  onTestFinished(() => project.close())
  project.write(
    'tasks.mjs',
    `import { task } from 'sluice'
const wait = () => new Promise((resolve) => setImmediate(resolve))
export const stray = task('stray', { run: ({ n }) => (void Promise.reject(new Error('nobody awaits ' + n)), wait()) })`,
  )
  const worker = project.start(['work'])
  await worker.says('working on stray')
  for (const n of [1, 2]) {
    expect(await project.run(['send', 'stray', `{"n":${n}}`])).toMatchObject({ code: 0 })
    await worker.says(`nobody awaits ${n}`)
  }
  worker.signal('SIGTERM')
  const { code, err } = await worker.ended
  expect(err).not.toContain('uncaught exception')
  expect(code).toBe(0)
})

it('a worker leaves no hook of its own to a process in which the store could not be closed', async ({
  onTestFinished,
}) => {
  const project = createProject({ DATABASE_URL: (await freshDatabase()).url, SLUICE_TASKS: 'tasks.mjs' })
  onTestFinished(() => project.close())
  project.write(
    'tasks.mjs',
    `import { Sluice, task } from 'sluice'
Sluice.prototype.close = () => Promise.reject(new Error('not closed'))
const hooks = () => process.rawListeners('exit')
const before = hooks()
process.once('exit', () => console.error(hooks().filter((hook) => !before.includes(hook)).length, 'hooks are left'))
export const none = task('none', { run: () => {} })`,
  )
  const worker = project.start(['work'])
  await worker.says('working on none')
  worker.signal('SIGTERM')
  const { err } = await worker.ended
  expect(err).toContain('not closed')
  expect(err).toContain('0 hooks are left')
})

it('a worker leaves nothing that keeps a program alive after close', async () => {
  const project = createNewcomer([])
  project.write(
    'app.mjs',
    `import { Sluice, task, useSluice } from 'sluice'
const twice = task('twice', { run: ({ n }) => 2 * n })
const sluice = await Sluice.open()
useSluice(sluice)
await sluice.work([twice])
const { result } = await sluice.waitFor(await twice.send({ n: 21 }))
await sluice.close()
console.log(result, process.getActiveResourcesInfo().filter((name) => !/Pipe|TTY/.test(name)))`,
  )
  const env = { ...project.env, DATABASE_URL: (await freshDatabase()).url }
  const { stdout } = await promisify(execFile)(process.execPath, [...brief, 'app.mjs'], { cwd: project.dir, env })
  expect(stdout).toBe('42 []\n')
})
