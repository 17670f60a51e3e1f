import { expect, it } from 'vitest'
import { z } from 'zod'
import { task } from '../../src/tasks/task.ts'
import { Sluice } from '../../src/sluice.ts'
import { freshDatabase } from '../servers/database.ts'
import { createProject, objects } from './program.ts'

const tasks = `
import { limit, task } from 'sluice'
import { z } from 'zod'
const calls = limit('calls', { rate: '1/h', by: 'url' })
export const call = task('call', { input: z.object({ url: z.string() }), limits: [calls], run: () => {} })
export const login = task('login', {
  input: z.object({ user: z.string(), password: z.string(), url: z.string() }),
  retry: { attempts: 1 },
  run: ({ url }, { log, fetch }) => {
    log.info('with Bearer abc.def', { api_key: 'key-of-one', nested: { cookie: 'crumbs' }, user: 'ada' })
    if (url === '') throw new Error('refused: Authorization: Bearer abc.def')
    return fetch(url)
  },
})
`

it('commands show no secrets to people, and --reveal shows a job as it is', async ({ onTestFinished }) => {
  const { url: store } = await freshDatabase()
  const project = createProject({ SLUICE_ALLOW_PRIVATE: '', DATABASE_URL: store })
  onTestFinished(() => project.close())
  project.write('tasks.ts', tasks)
  const login = task('login', { input: z.record(z.string(), z.string()), run: () => {} })
  const input = { user: 'ada', password: 'hunter2', url: 'http://127.0.0.1:8099/?token=t1' }
  const sluice = await Sluice.open({ store })
  const throwing = await sluice.send(login, { ...input, url: '' })
  const inside = await sluice.send(login, input)
  const ruled = [{ rule: 'r', change: { url: 'https://x.example/?token=t2' } }]
  const stopped = await sluice.send(login, input)
  await sluice.jobs.cancel(stopped, 'as https://x.example/?token=t3 says')
  await sluice.db.query(`update sluice.done set ruled = $2::jsonb where id = $1`, [stopped, JSON.stringify(ruled)])
  await sluice.close()

  const { err } = await project.run(['dispatch', '--once', '--tasks', 'tasks.ts'])
  const line = 'info  with Bearer [redacted]  api_key=[redacted] nested={"cookie":"[redacted]"} user=ada'
  expect(err).toContain(line)
  const shown = await project.runWarm(['jobs', 'show', throwing])
  expect(shown.out).toContain('"password": "[redacted]"')
  expect(shown.out).toContain('refused: Authorization: [redacted]')
  const json = await project.runWarm(['jobs', 'show', inside, '--json'])
  const message = expect.stringContaining("allowPrivate: ['127.0.0.1:8099']") as string
  expect(objects(json.out)[0]).toMatchObject({
    input: { user: 'ada', password: '[redacted]', url: 'http://127.0.0.1:8099/?token=[redacted]' },
    error: { code: 'SLUICE_BLOCKED_ADDRESS', message },
  })
  expect(JSON.stringify([err, shown, json])).not.toMatch(/hunter2|abc\.def|key-of|crumbs|=t1/)
  const all = [
    ['jobs', 'show', stopped],
    ['jobs', '--state', 'cancelled', '--json'],
    ['jobs', 'export', '--state', 'cancelled'],
    ['why', stopped],
  ]
  for (const args of all) {
    const { out } = await project.runWarm(args)
    expect(out).toContain('token=[redacted]')
    expect(out).not.toMatch(/=t[23]/)
  }
  const revealed = await project.runWarm(['jobs', 'show', inside, '--reveal', '--json'])
  expect(objects(revealed.out)[0]).toMatchObject({ input })

  // The config file may set what the environment leaves open.
  project.write('sluice.config.ts', `export default { tasks: './tasks.ts', allowPrivate: ['127.0.0.0/8'] }`)
  await project.runWarm(['retry', inside])
  await project.run(['dispatch', '--once'])
  const [allowed] = objects((await project.runWarm(['jobs', 'show', inside, '--json'])).out)
  expect(JSON.stringify((allowed as { error: unknown }).error)).not.toContain('SLUICE_BLOCKED_ADDRESS')
  expect(allowed).not.toMatchObject({ state: 'waiting' })
})

it('the keys of limits show no secrets, as JSON too', async ({ onTestFinished }) => {
  const { url: store } = await freshDatabase()
  const project = createProject({ DATABASE_URL: store, SLUICE_TASKS: 'tasks.ts' })
  onTestFinished(() => project.close())
  project.write('tasks.ts', tasks)
  const key = 'https://x.example/?token=t4'
  await project.run(['send', 'call', JSON.stringify({ url: key }), '--repeat', '2'])
  await project.run(['dispatch', '--once'])
  const shown = [['limits', 'show', 'calls'], ['status']]
  const json = shown.map((args) => [...args, '--json'])
  for (const args of [...shown, ...json]) {
    const { out } = await project.runWarm(args)
    expect(out).toContain('token=[redacted]')
    expect(out).not.toContain('=t4')
  }
  const { err } = await project.runWarm(['limits', 'pause', 'calls', '--key', `${key}'s`, '--reason', 'test'])
  expect(err).toContain(String.raw`--key 'https://x.example/?token=t4'\''s'`)
  for (const args of [['limits'], ['limits', '--json']]) {
    const { out } = await project.runWarm(args)
    expect(out).toContain('token=[redacted]')
    expect(out).not.toContain('=t4')
  }
})
