import { expect, it } from 'vitest'
import { Sluice } from '../../src/sluice.ts'
import { freshDatabase } from '../servers/database.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'
import { createProject } from './program.ts'

const file = `
import { task } from 'sluice'
export const greet = task('greet', { run: ({ name }) => 'hello ' + name })
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
  const dispatcher = project.start(['dispatch'], { env })
  const worker = project.start(['work', '--broker'], { env })
  await dispatcher.says('giving to the workers of the fleet: greet, http')
  await worker.says('waiting for a dispatcher to send greet, http')
  await until(
    async () => /fleet +1 dispatcher for 1 worker; 0 messages/.test((await project.run(['status'], { env })).out),
    'status shows the fleet and its queues',
  )
  expect((await sluice.jobs.status()).slots).toBe(10)
  await project.run(['send', 'greet', '{"name":"you"}'])
  await until(async () => (await sluice.jobs.status()).done === 1, 'the job is done')
  const [job] = await sluice.list({ state: 'done' })
  expect(await sluice.jobs.get(job?.id ?? '')).toMatchObject({ result: 'hello you' })
  worker.signal('SIGTERM')
  dispatcher.signal('SIGTERM')
  expect([(await worker.ended).code, (await dispatcher.ended).code]).toEqual([0, 0])
})
