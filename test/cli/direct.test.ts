import { expect, it } from 'vitest'
import { openProducer } from '../../src/celery/index.ts'
import { startRedis } from '../servers/redis.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { createProject } from './program.ts'

const file = `
import { limit, schedule, task } from 'sluice'
const crm = limit('crm', { rate: '100/s' })
export const greet = task('greet', { limits: [crm], run: ([name]) => 'hello ' + name })
`

it('a worker without a store names what is missing, executes what Celery sends, and stops on SIGTERM', async ({
  onTestFinished,
}) => {
  const [broker, redis] = await Promise.all([freshBroker(), startRedis()])
  const project = createProject({ SLUICE_TASKS: 'tasks.ts' })
  onTestFinished(async () => {
    await project.close()
    await redis.close()
  })
  project.write('tasks.ts', file)
  const direct = ['work', '--direct', '--celery', 'celery']
  const [none, broke, both, queues] = await Promise.all([
    project.run(direct, { env: { AMQP_URL: broker.url } }),
    project.run(direct, { env: { REDIS_URL: redis.url } }),
    project.run([...direct, '--broker']),
    project.run([...direct, '--rate', '1/s']),
  ])
  expect(none.err).toContain('SLUICE_NO_REDIS')
  expect(broke.err).toContain('SLUICE_NO_BROKER')
  expect([none, broke, both, queues].map(({ code }) => code)).toEqual([2, 2, 2, 2])
  for (const [name, { url }] of [
    ['AMQP_URL', broker],
    ['CELERY_BROKER_URL', redis],
  ] as const) {
    const worker = project.start(direct, { env: { [name]: url, REDIS_URL: redis.url } })
    await worker.says("executing greet, http from Celery's 1 queue celery, without a store, 10 at once")
    const producer = await openProducer({ broker: url })
    onTestFinished(() => producer.close())
    const sent = await producer.delay('greet', ['you'])
    expect(await sent.result({ within: '20s' })).toBe('hello you')
    worker.signal('SIGTERM')
    expect((await worker.ended).code).toBe(0)
  }
  project.write(
    'tasks.ts',
    `${file}export const nightly = schedule('nightly', { task: greet, cron: '0 3 * * *', input: ['x'] })\n`,
  )
  const stored = await project.run(direct, { env: { AMQP_URL: broker.url, REDIS_URL: redis.url } })
  expect(stored.err).toContain('SLUICE_NEEDS_STORE')
})
