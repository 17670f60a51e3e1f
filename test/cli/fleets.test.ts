import { expect, it } from 'vitest'
import { Sluice } from '../../src/sluice.ts'
import { freshDatabase } from '../servers/database.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'
import { createProject } from './program.ts'

const file = `
import { schedule, task } from 'sluice'
export const greet = task('greet', { run: ({ name }) => 'hello ' + name })
export const yearly = schedule('yearly', { task: greet, cron: '0 0 1 1 *', input: { name: 'all' } })
`

it('a dispatcher gives jobs to a worker over the broker, and both stop on SIGTERM', async ({ onTestFinished }) => {
  const { url } = await freshDatabase()
  const sluice = await Sluice.open({ store: url })
  const project = createProject({ SLUICE_TASKS: 'tasks.ts', DATABASE_URL: url })
  onTestFinished(async () => {
    await project.close()
    await sluice.close()
  })
  project.write('tasks.ts', file)
  const [alone, wrong] = await Promise.all([
    project.run(['dispatch']),
    project.run(['work', '--broker', '--rate', '1/s']),
  ])
  expect([alone.code, wrong.code]).toEqual([2, 2])
  expect(alone.err).toContain('SLUICE_NO_BROKER')
  const env = { AMQP_URL: (await freshBroker()).url }
  const dispatcher = project.start(['dispatch', './tasks.ts'], { env })
  const worker = project.start(['work', '--broker'], { env })
  await dispatcher.says('giving to the workers of the fleet: greet, http, and 1 schedule from ')
  await worker.says('waiting for a dispatcher to send greet, http from ')
  await until(
    async () =>
      /1 with \d+ slots, dispatchers included\nfleet +1 dispatcher for 1 worker; 0 messages/.test(
        (await project.run(['status'], { env })).out,
      ),
    'status shows the fleet and its queues',
  )
  expect((await sluice.jobs.status()).slots).toBe(10)
  await project.run(['send', 'greet', '{"name":"you"}'])
  await until(async () => (await sluice.jobs.status()).done === 1, 'the job is done')
  const [job] = await sluice.list({ state: 'done' })
  expect(await sluice.jobs.get(job?.id ?? '')).toMatchObject({ result: 'hello you' })
  const lonely = `select from sluice.worker where stints = '{}'`
  expect(await sluice.db.query(lonely)).toEqual([])
  worker.signal('SIGTERM')
  expect((await worker.ended).code).toBe(0)
  await until(async () => (await sluice.db.query(lonely)).length === 1, 'the dispatcher has no worker')
  dispatcher.signal('SIGTERM')
  expect((await dispatcher.ended).code).toBe(0)
})

it('a worker without DATABASE_URL executes, and its handlers can send nothing', async ({ onTestFinished }) => {
  const { url } = await freshDatabase()
  const sluice = await Sluice.open({ store: url })
  const project = createProject({ SLUICE_TASKS: 'tasks.ts' })
  onTestFinished(async () => {
    await project.close()
    await sluice.close()
  })
  const sender = `export const tell = task('tell', { retry: { attempts: 1 }, run: () => greet.send({ name: 'you' }) })`
  project.write('tasks.ts', `${file}${sender}`)
  const AMQP_URL = (await freshBroker()).url
  const dispatcher = project.start(['dispatch'], { env: { AMQP_URL, DATABASE_URL: url } })
  const worker = project.start(['work', '--broker'], { env: { AMQP_URL } })
  await worker.says('waiting for a dispatcher to send greet, tell, http, without a store (no DATABASE_URL), 10 at once')
  const env = { DATABASE_URL: url }
  await project.run(['send', 'greet', '{"name":"you"}'], { env })
  await project.run(['send', 'tell', '{}'], { env })
  await until(async () => (await sluice.jobs.status()).failed === 1, 'one has failed')
  await until(async () => (await sluice.jobs.status()).done === 1, 'one is done')
  const [done] = await sluice.list({ state: 'done' })
  expect(await sluice.jobs.get(done?.id ?? '')).toMatchObject({ result: 'hello you' })
  const [failed] = await sluice.list({ state: 'failed' })
  expect(await sluice.jobs.get(failed?.id ?? '')).toMatchObject({ error: { code: 'SLUICE_NEEDS_STORE' } })
  worker.signal('SIGTERM')
  expect((await worker.ended).code).toBe(0)
  dispatcher.signal('SIGTERM')
  expect((await dispatcher.ended).code).toBe(0)
})

it('a worker names the tasks that it leaves to Celery workers, and `why` who has to act', async ({
  onTestFinished,
}) => {
  const { url } = await freshDatabase()
  const project = createProject({ SLUICE_TASKS: 'tasks.ts', DATABASE_URL: url })
  onTestFinished(() => project.close())
  project.write('tasks.ts', `${file}export { far } from './far.ts'\n`)
  project.write(
    'far.ts',
    `import { remoteTask } from 'sluice'\nexport const far = remoteTask('far', { queue: 'celery', slots: 2 })\n`,
  )
  const worker = project.start(['work'])
  await worker.says('working on greet, http, and 1 schedule from ')
  await worker.says('not working on far: Celery workers execute that, and `sluice dispatch` gives it to them')
  const sent = await project.run(['send', 'far', '{}'])
  expect(sent.err).toContain('a Celery worker runs it, behind `sluice dispatch`')
  const { out } = await project.run(['why', '--task', 'far'])
  expect(out).toContain('no worker that knows task far serves queue celery')
  expect(out).toContain('Celery workers execute it: start `sluice dispatch`, which gives it to them')
})
