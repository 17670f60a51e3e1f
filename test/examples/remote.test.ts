import { execFile, spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { Sluice } from '../../src/index.ts'
import { vendor } from '../../src/testing/index.ts'
import { push, sync } from '../../examples/celery/tasks.ts'
import { createProject } from '../cli/program.ts'
import { freshDatabase } from '../servers/database.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'
import { findPython } from './interpreter.ts'

const place = fileURLToPath(new URL('../../examples/celery', import.meta.url))

it('a stock Celery worker and a worker in Node execute what Node and a producer of Celery send, under one limit', async ({
  onTestFinished,
}) => {
  const [{ url: store }, { url: amqp }, python] = [
    await freshDatabase(),
    await freshBroker(),
    await findPython('celery'),
  ]
  const crm = vendor({ rules: [{ algorithm: 'sliding log', limit: 20, windowMs: 2_000 }] })
  const env = { DATABASE_URL: store, AMQP_URL: amqp, CRM_API: await crm.listen(), SLUICE_ALLOW_PRIVATE: '127.0.0.1' }
  const project = createProject(env)
  const args = ['-m', 'celery', '-A', 'shop', 'worker', '-Q', 'sync', '-c', '4', '-n', 'shop@host']
  const more = { ...process.env, ...env, PYTHONDONTWRITEBYTECODE: '1' }
  const worker = spawn(python, args, { cwd: place, env: more, detached: true, stdio: 'ignore' })
  const sluice = await Sluice.open({ store })
  onTestFinished(async () => {
    process.kill(-(worker.pid as number), 'SIGKILL')
    await Promise.all([project.close(), sluice.close(), crm.close()])
  })
  const config = ['--config', `${place}/sluice.config.ts`]
  project.start(['dispatch', '--celery', 'sluice-in', ...config])
  project.start(['work', '--broker', ...config])
  const customers = Array.from({ length: 15 }, (_, n) => ({ customer: 100 + n }))
  await Promise.all([sluice.sendMany(sync, customers), sluice.sendMany(push, customers)])
  const calls = 10
  const { stdout } = await promisify(execFile)(python, ['producer.py', String(calls)], { cwd: place, env: more })
  const results = Array.from({ length: calls }, (_, n) => [`shop.sync ${n}: {'status': 200}`, `push ${n}: None`])
  expect(stdout.trimEnd().split('\n')).toEqual(results.flat())
  await until(async () => (await sluice.jobs.status()).done === 50, 'all are done')
  const { vendor429, duplicates, rules } = crm.report()
  expect({ vendor429, duplicates, exceeded: rules[0]?.exceeded }).toEqual({ vendor429: 0, duplicates: 0, exceeded: 0 })
  const paths = crm.arrivals().map(({ path }) => path)
  const called = [...customers.map(({ customer }) => customer), ...Array(calls).keys()]
  expect(paths.toSorted()).toEqual(called.flatMap((one) => [`/push/${one}`, `/sync/${one}`]).toSorted())
})
