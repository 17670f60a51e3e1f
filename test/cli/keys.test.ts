/** Limits by labels and pools, as a user of the command line meets them. */
import { afterEach, beforeEach, expect, it } from 'vitest'
import { z } from 'zod'
import { task } from '../../src/tasks/task.ts'
import { limit } from '../../src/limits/limit.ts'
import { label } from '../../src/limits/pool.ts'
import { Sluice } from '../../src/sluice.ts'
import { freshDatabase } from '../servers/database.ts'
import { createProject, objects, type Project } from './program.ts'

let project: Project

beforeEach(async () => {
  const { url } = await freshDatabase()
  const sluice = await Sluice.open({ store: url })
  const out = limit('out', { window: '1/h', by: label('egress') })
  const sender = limit('sender', { window: '5/h', pool: ['acct1', 'acct2'] })
  const call = task('call', { input: z.object({}), limits: [out, sender], run: () => undefined })
  await sluice.sendMany(call, [{}, {}, {}])
  await sluice.close()
  project = createProject({ DATABASE_URL: url })
  project.write(
    'sluice.config.ts',
    `import { defineConfig, label, limit, task } from 'sluice'
const input = { '~standard': { version: 1, vendor: 'test', validate: (value) => ({ value }) } }
const out = limit('out', { window: '1/h', by: label('egress') })
const sender = limit('sender', { window: '5/h', pool: ['acct1', { key: 'acct2', baseUrl: 'https://two.example' }] })
const call = task('call', { input, limits: [out, sender], run: (_, { pool, labels }) => [pool.sender.key, labels.egress] })
export default defineConfig({ tasks: [call] })`,
  )
})
afterEach(() => project.close())

it('a worker needs the labels of its limits, by flag or environment, each label has its own room, and limits shows it', async () => {
  const once = async (args: string[], env = {}) => {
    const ran = await project.run(['dispatch', '--once', '--json', ...args], { env })
    return objects(ran.out)[0] ?? ran.err
  }
  expect(await once([])).toEqual({ dispatched: 0 })
  const doctor = objects((await project.run(['doctor', '--json'])).out)
  expect(doctor).toContainEqual({
    check: 'labels',
    status: 'warn',
    text: expect.stringContaining('egress (task call, queue default)'),
  })
  expect(await once(['--label', 'egress=x', '--label', 'rack=1'])).toEqual({ dispatched: 1 })
  expect(await once([], { SLUICE_LABELS: 'egress=y' })).toEqual({ dispatched: 1 })
  const limits = objects((await project.run(['limits', '--json'])).out)
  expect(limits).toMatchObject([
    {
      name: 'out',
      label: 'egress',
      keys: [
        { key: 'x', free: 0, nextMs: expect.any(Number) },
        { key: 'y', free: 0, nextMs: expect.any(Number) },
      ],
    },
    {
      name: 'sender',
      label: null,
      keys: [
        { key: 'acct1', free: 4 },
        { key: 'acct2', free: 4 },
      ],
    },
  ])
  const { out } = await project.run(['limits'])
  expect(out).toContain('for each label egress')
  expect(out).toContain('for each of its 2 members')
  expect(out).toMatch(/acct1: 4 free\n.*acct2: 4 free/)
})
