import { join } from 'node:path'
import { expect, it } from 'vitest'
import { createProject, objects } from './program.ts'

const tasks = `
import { task } from 'sluice'
import { z } from 'zod'
export const login = task('login', {
  input: z.object({ user: z.string(), password: z.string(), url: z.string() }),
  retry: { attempts: 1 },
  run: ({ url }, { log, fetch }) => {
    log.info('with Bearer abc.def', { api_key: 'k1', nested: { cookie: 'c1' }, user: 'ada' })
    if (url === '') throw new Error('refused: Authorization: Bearer abc.def')
    return fetch(url)
  },
})
`

it('what people read has no secrets, and --reveal shows a job as it is', async ({ onTestFinished }) => {
  const project = createProject({ SLUICE_ALLOW_PRIVATE: '' })
  onTestFinished(() => project.close())
  project.write('tasks.ts', tasks)
  const store = ['--store', join(project.dir, 'data')]
  const input = { user: 'ada', password: 'hunter2', url: '' }
  const send = async (given: object) =>
    (await project.run(['send', 'login', JSON.stringify(given), '--tasks', 'tasks.ts', ...store])).out.trim()
  const id = await send(input)
  const inside = await send({ ...input, url: 'http://127.0.0.1:9/?token=t1' })
  const { err } = await project.run(['dispatch', '--once', '--tasks', 'tasks.ts', ...store])
  expect(err).toContain(
    'info with Bearer [redacted] {"api_key":"[redacted]","nested":{"cookie":"[redacted]"},"user":"ada"}',
  )

  const shown = await project.run(['jobs', 'show', id, ...store])
  expect(shown.out).toContain('{"user":"ada","password":"[redacted]","url":""}')
  expect(shown.out).toContain('refused: Authorization: [redacted]')
  const json = objects((await project.run(['jobs', 'show', inside, '--json', ...store])).out)[0]
  expect(json).toMatchObject({
    input: { password: '[redacted]', url: 'http://127.0.0.1:9/?token=[redacted]' },
    error: {
      code: 'SLUICE_BLOCKED_ADDRESS',
      message: expect.stringContaining("allowPrivate: ['127.0.0.1:9']") as string,
    },
  })
  const list = await project.run(['jobs', '--state', 'failed', ...store])
  expect(JSON.stringify([err, shown, json, list])).not.toMatch(/hunter2|abc\.def|k1|c1|=t1/)

  const revealed = objects((await project.run(['jobs', 'show', inside, '--reveal', '--json', ...store])).out)[0]
  expect(revealed).toMatchObject({ input: { ...input, url: 'http://127.0.0.1:9/?token=t1' } })
})
