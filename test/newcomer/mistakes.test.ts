/** Mistakes of the first hour: each error names the way out, and nothing is left behind. */
import { existsSync } from 'node:fs'
import { devNull } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { httpTask, limit, remoteTask, Sluice, task } from '../../src/index.ts'
import { createProject, type Project } from '../cli/program.ts'

let project: Project
beforeEach(() => void (project = createProject()))
afterEach(() => project.close())

it('`dev` without tasks ends, instead of waiting for a file that nobody named, and creates no store', async () => {
  const text = /^error SLUICE_NO_TASKS: .*`sluice init` writes one/
  expect(await project.run(['dev'])).toMatchObject({ code: 2, err: expect.stringMatching(text) })
  expect(existsSync(join(project.dir, '.sluice'))).toBe(false)
})

it('a directory that cannot be written leads to DATABASE_URL, which a container mostly lacks', async () => {
  const store = join(devNull, 'store')
  await expect(Sluice.open({ store })).rejects.toMatchObject({
    code: 'SLUICE_STORE_UNREACHABLE',
    message: expect.stringMatching(
      /did not start in \/dev\/null\/store \(.*\); set DATABASE_URL .*, or give a directory/,
    ),
  })
})

it('a command that npx started names the next one with npx, because the shell knows no other', async () => {
  const env = { npm_command: 'exec' }
  expect((await project.run(['init'], { env })).err).toContain('next: `npx sluice dev`')
  expect((await project.run(['why'], { env })).err).toContain('`npx sluice jobs` lists them')
  expect((await project.run(['why'])).err).toContain('`sluice jobs` lists them')
})

it('a remote task without options is told what it lacks', () => {
  const define = () => remoteTask('t', undefined as never)
  expect(define).toThrow(expect.objectContaining({ code: 'SLUICE_BAD_TASK' }))
})

describe('limits of a task', () => {
  const crm = limit('crm', { rate: '1/s' })
  it.each([
    ['a name', ['crm'], `task "t": 'crm' is no limit; list what \`limit('name', …)\` returned`],
    ['what a module does not export', [crm, undefined], 'task "t": undefined is no limit'],
    [
      'a costed limit without its limit',
      [{ limit: 'crm', cost: 2 }],
      `task "t": { limit: 'crm', cost: 2 } is no limit`,
    ],
    ['a limit without a list', crm, 'task "t": limits must be a list: [crm]'],
  ])('%s is refused where the task is defined', (_, limits, message) => {
    const given = { limits: limits as never }
    for (const define of [
      () => task('t', { ...given, run: () => undefined }),
      () => httpTask('t', given),
      () => remoteTask('t', { ...given, slots: 1 }),
    ])
      expect(define).toThrow(
        expect.objectContaining({ code: 'SLUICE_BAD_TASK', message: expect.stringContaining(message) }),
      )
  })
})
