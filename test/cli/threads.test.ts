/** Tasks in threads, as a user's project has them. */
import { afterEach, beforeEach, expect, it } from 'vitest'
import { freshDatabase } from '../servers/database.ts'
import { until } from '../until.ts'
import { createProject, objects, type Project } from './program.ts'

let project: Project

beforeEach(async () => {
  project = createProject({ DATABASE_URL: (await freshDatabase()).url, SLUICE_TASKS: 'tasks.ts' })
  project.write(
    'tasks.ts',
    `import { task } from 'sluice'
import { z } from 'zod'
const thread = new URL('./work.ts', import.meta.url)
export const square = task('square', { input: z.object({ n: z.number() }), thread })`,
  )
  project.write(
    'work.ts',
    `import { AttemptError, type ThreadContext } from 'sluice'
import { times } from './times.ts'
export default function square({ n }: { n: number }, { log }: ThreadContext): number {
  if (n < 0) throw new AttemptError('APP_NEGATIVE', 'n is negative', { retryable: false })
  log.info('begun')
  for (; n === 0; );
  return times(n, n)
}`,
  )
  project.write('times.ts', 'export const times = (a: number, b: number): number => a * b')
})
afterEach(() => project.close())

it('work runs TypeScript in threads, and ends on a second signal even when a thread is busy for ever', async () => {
  const worker = project.start(['work'])
  await worker.says('working on')
  const [good, bad] = [await send({ n: 7 }), await send({ n: -1 })]
  await worker.says('begun')
  const endless = await send({ n: 0 })
  await until(() => worker.err().split('begun').length > 2, 'the endless one has begun')
  worker.signal('SIGTERM')
  await worker.says('stopping: waiting for 1 running job')
  worker.signal('SIGTERM')
  expect(await worker.ended).toMatchObject({ code: 0 })
  expect(await show(good)).toMatchObject({ state: 'done', result: 49 })
  expect(await show(bad)).toMatchObject({ reason: 'refused', error: { code: 'APP_NEGATIVE' } })
  expect(await show(endless)).toMatchObject({ attempt: 1, ambiguous: true, finishedAt: null })
})

it('a worker with threads does not start without piscina, and names what to install, and a sender needs neither', async () => {
  const hide = `export async function resolve(name, context, next) {
    if (name === 'piscina') throw Object.assign(new Error('Cannot find package'), { code: 'ERR_MODULE_NOT_FOUND' })
    return next(name, context)
  }`
  const url = JSON.stringify(`data:text/javascript,${encodeURIComponent(hide)}`)
  project.write('hide.mjs', `import { register } from 'node:module'\nregister(${url})`)
  const env = { NODE_OPTIONS: '--import=./hide.mjs' }
  expect(await project.run(['send', 'square', '{"n":1}'], { env })).toMatchObject({ code: 0 })
  expect(await project.run(['work'], { env })).toMatchObject({
    code: 2,
    err: expect.stringMatching(/^error SLUICE_MISSING_PEER: .*npm install piscina@5$/m),
  })
})

async function send(input: object): Promise<string> {
  return (await project.run(['send', 'square', JSON.stringify(input)])).out.trim()
}

async function show(id: string): Promise<unknown> {
  return objects((await project.runWarm(['jobs', 'show', id, '--json'])).out)[0]
}
