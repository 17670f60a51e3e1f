/** The store in a handler: `currentSluice` is the one that `task.send` uses. */
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { currentSluice, Sluice, task, useSluice } from '../../src/index.ts'
import { testSluice } from '../../src/testing/index.ts'
import { createNewcomer } from './newcomer.ts'

const execute = promisify(execFile)
const main = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url))

it('is the one of useSluice, and in a test that of the kit', async () => {
  const sluice = await Sluice.open({ store: 'memory:' })
  useSluice(sluice)
  try {
    expect(await currentSluice()).toBe(sluice)
    const count = task('count', { run: async () => (await (await currentSluice()).jobs.count({ tag: 'a' })).count })
    const t = await testSluice({ tasks: [count] })
    expect(await currentSluice()).toBe(t.sluice)
    await count.send({}, { tags: ['a'], delay: '1h' })
    const id = await count.send({})
    await t.drain()
    expect((await t.waitFor(id)).result).toBe(1)
    await t.close()
  } finally {
    useSluice(undefined)
    await sluice.close()
  }
})

it('is the one of the command line, also where a flag names its store', async () => {
  const project = createNewcomer([])
  project.write('package.json', '{"type":"module"}')
  project.write(
    'tasks.js',
    `import { currentSluice, task } from 'sluice'
     export const where = task('where', { run: async () => (await currentSluice()).db.where })`,
  )
  // As in vitest.config.ts.
  const sluice = async (...args: string[]) => {
    const command = ['--liftoff-only', main, ...args, '--tasks', 'tasks.js', '--store', 'mine', '--json']
    return (await execute(process.execPath, command, { cwd: project.dir, env: project.env })).stdout
  }
  const { id } = JSON.parse(await sluice('send', 'where', '{}')) as { id: string }
  await sluice('dispatch', '--once')
  const job = JSON.parse(
    (
      await execute(process.execPath, [main, 'jobs', 'show', id, '--store', 'mine', '--json'], {
        cwd: project.dir,
        env: project.env,
      })
    ).stdout,
  ) as { result: string }
  expect(job.result).toContain(join(project.dir, 'mine'))
})
