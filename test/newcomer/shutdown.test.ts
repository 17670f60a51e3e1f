/** A worker that ends below the processes that containers start: SIGTERM goes to the first of them only. */
import { spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'
import { Sluice } from '../../src/index.ts'
import { createProject } from '../cli/program.ts'
import { freshDatabase } from '../servers/database.ts'
import { later, until } from '../until.ts'

const main = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url))
const work = `exec "${process.execPath}" "${main}" work tasks.ts --grace 100ms --log-level info`

it('gives back what still runs when its grace is over, below sh and below npm', async ({ onTestFinished }) => {
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
  expect(await sluice.db.query('select 1 from sluice.worker')).toEqual([])
  expect(await sluice.db.query('select ambiguous, claim from sluice.job')).toEqual(
    trees.map(() => ({ ambiguous: true, claim: null })),
  )
}, 120_000)
