/** The store in a handler: `currentSluice` is the one that `task.send` uses. */
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { currentSluice, Sluice, task, useSluice } from '../../src/index.ts'
import { testSluice } from '../../src/testing/index.ts'
import { createNewcomer } from './newcomer.ts'
import { brief } from '../v8.ts'

const execute = promisify(execFile)
const main = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url))

it('the current Sluice is the one of useSluice, and in a test that of the kit', async () => {
  const sluice = await Sluice.open({ store: 'memory:' })
  useSluice(sluice)
  try {
    expect(await currentSluice()).toBe(sluice)
    const count = task('count', { run: async () => (await (await currentSluice()).jobs.count({ tag: 'a' })).count })
    const t = await testSluice({ tasks: [count] })
    expect(await currentSluice()).toBe(t.sluice)
    await count.send({}, { tags: ['a'], delay: '1h' })
    const id = await count.send()
    await t.drain()
    expect(await t.waitFor(id)).toMatchObject({ input: {}, result: 1 })
    const missing: unknown = undefined
    expect(await t.sluice.jobs.get(await count.send(missing))).toMatchObject({ input: null })
    await t[Symbol.asyncDispose]()
    expect(await currentSluice()).toBe(sluice)
  } finally {
    useSluice(undefined)
    await sluice.close()
  }
})

it('the current Sluice is the one before the kits, in whatever order they are closed', async () => {
  const sluice = await Sluice.open({ store: 'memory:' })
  useSluice(sluice)
  try {
    const [first, second] = [await testSluice({ tasks: [] }), await testSluice({ tasks: [] })]
    await first.close()
    expect(await currentSluice()).toBe(second.sluice)
    await second.close()
    expect(await currentSluice()).toBe(sluice)
  } finally {
    useSluice(undefined)
    await sluice.close()
  }
})

it('waitFor ends by its signal, and the job goes on', async () => {
  const sluice = await Sluice.open({ store: 'memory:' })
  const id = await sluice.send(task('late', { run: () => 1 }), {}, { delay: '1h' })
  const gone = new AbortController()
  const waited = sluice.waitFor(id, { signal: gone.signal })
  gone.abort(new RangeError('the client has gone'))
  await expect(waited).rejects.toThrow('the client has gone')
  expect(await sluice.jobs.get(id)).toMatchObject({ state: 'scheduled' })
  await sluice[Symbol.asyncDispose]()
  await expect(sluice.jobs.get(id)).rejects.toMatchObject({ code: 'SLUICE_CLOSED' })
})

it('the current Sluice is the one of the command line, also where a flag names its store', async () => {
  const project = createNewcomer([])
  project.write('package.json', '{"type":"module"}')
  project.write(
    'tasks.js',
    `import { currentSluice, task } from 'sluice'
     export const where = task('where', { run: async () => (await currentSluice()).db.where })`,
  )
  const sluice = async (...args: string[]) => {
    const command = [...brief, main, ...args, '--tasks', 'tasks.js', '--store', 'mine', '--json']
    return (await execute(process.execPath, command, { cwd: project.dir, env: project.env })).stdout
  }
  const { id } = JSON.parse(await sluice('send', 'where', '{}')) as { id: string }
  await sluice('dispatch', '--once')
  const job = JSON.parse(
    (
      await execute(process.execPath, [...brief, main, 'jobs', 'show', id, '--store', 'mine', '--json'], {
        cwd: project.dir,
        env: project.env,
      })
    ).stdout,
  ) as { result: string }
  expect(job.result).toContain(join(project.dir, 'mine'))
})
