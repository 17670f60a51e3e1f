/** What new users met on the command line (stops that nobody saw, typos that passed), as it has to be. */
import { afterAll, beforeAll, expect, it } from 'vitest'
import { newId } from '../../src/core/hash.ts'
import { createProject, objects, type Project, type Ran } from '../cli/program.ts'
import { freshDatabase } from '../servers/database.ts'

let project: Project
let url: string

beforeAll(async () => {
  ;({ url } = await freshDatabase())
  project = createProject({ DATABASE_URL: url })
  project.write(
    'tasks.ts',
    `import { limit, task } from 'sluice'
import { z } from 'zod'
const crm = limit('crm', { window: ['20/s', '60/h'], by: 'accountId' })
const input = z.object({ accountId: z.string() })
export const sync = task('sync-contact', { input, limits: [crm], run: () => 1 })
export const gone = task('gone', { input, run: () => 1 })`,
  )
  project.write('work.ts', `export { sync } from './tasks.ts'`)
  project.write('sluice.config.ts', `export default { tasks: './tasks.ts' }`)
  await project.run(['send', 'sync-contact', '{"accountId":"a1"}', '--repeat', '50'])
  await project.run(['send', 'gone', '{"accountId":"a1"}'])
  await project.run(['dispatch', '--once', '--tasks', 'work.ts'])
  await project.runWarm(['pause', '--limit', 'crm', '--key', 'a1', '--reason', 'audit'])
})
afterAll(() => project.close())

it('status names the paused key and the task that no worker knows, tasks lists it, and doctor fails on it', async () => {
  const worker = project.start(['work', 'work.ts'])
  await worker.says('working on')
  const { out } = await project.runWarm(['status'])
  expect(out).toMatch(/sync-contact +default +30 .*crm paused for a1 by .*: audit/)
  expect(out).toMatch(/gone +default +1 .*no worker knows the task/)
  expect(out).toMatch(/crm +30 +1 .*paused for a1/)
  expect((await project.run(['tasks'])).out).toMatch(/gone +\S+ +0 +-/)
  const doctor = await project.run(['doctor'])
  expect(doctor.code).toBe(1)
  expect(doctor.out).toMatch(/fail {2}abandoned .*1 of task gone in queue default \(no worker knows the task\)/)
  worker.signal('SIGTERM')
  await worker.ended
})

it('tasks names a task as waiting for a worker only while a job of it waits', async () => {
  project.write('other.ts', `import { task } from 'sluice'\nexport const other = task('other', { run: () => 1 })`)
  const waits = async () => {
    const lines = objects((await project.runWarm(['tasks', '--json'])).out)
    return lines.filter((line) => line['hasWaitingJobs'] === true).map((line) => line['name'])
  }
  await project.run(['send', 'other', '{}', '--tasks', 'other.ts'])
  expect(await waits()).toContain('other')
  await project.runWarm(['cancel', '--task', 'other', '--yes'])
  expect(await waits()).not.toContain('other')
  expect(await waits()).toContain('gone')
})

it('why takes the beginning of an id and a task, and lists the jobs of an ambiguous beginning', async () => {
  const waiting = objects((await project.runWarm(['jobs', '--task', 'sync-contact', '--json'])).out)
  const id = waiting[0]?.['id'] as string
  const why = await project.runWarm(['why', id.slice(0, 35)])
  expect(why).toMatchObject({ code: expect.any(Number) })
  expect(why.out + why.err).toContain(id)
  const many = await project.runWarm(['why', id.slice(0, 6)])
  expect(many).toMatchObject({ code: 2, err: expect.stringContaining('SLUICE_AMBIGUOUS_ID') })
  expect(many.err).toContain('(sync-contact, waiting)')
  expect((await project.runWarm(['why', '--task', 'sync-contact'])).out).toContain('sluice resume --limit crm --key a1')
  expect(await project.runWarm(['why', '0000000'])).toMatchObject({ code: 1 })
})

it('every command that takes the id of a job takes its end, as a narrow table shows it', async () => {
  project.write('other.ts', `import { task } from 'sluice'\nexport const other = task('other', { run: () => 1 })`)
  const ends = ['000000aaaaaa', '000000bbbbbb', '111111bbbbbb']
  const ids = ends.map((end) => `${newId().slice(0, 24)}${end}`)
  for (const id of ids) await project.run(['send', 'other', '{}', '--tasks', 'other.ts', '--id', id])
  const id = String(ids[0])
  const end = `…${id.slice(-8)}`
  const commands = [
    ['why', end],
    ['why', id.slice(-8)],
    ['jobs', 'show', end],
    ['reprioritise', end, '--priority', '3'],
    ['cancel', end],
    ['retry', end],
    ['jobs', 'show', end],
    ['jobs', 'discard', end],
    ['release', end],
  ]
  const answers = await Promise.all(commands.map((args) => project.runWarm(args)))
  answers.push(await project.run(['jobs', 'edit', end, '{}', '--dry-run']))
  for (const [i, { out, err }] of answers.entries()) expect(out + err, commands[i]?.join(' ')).toContain(id)
  const before = objects(
    (await project.runWarm(['jobs', '--task', 'other', '--before', ids[2]?.slice(-9) ?? '', '--json'])).out,
  )
  expect(before.map((job) => job['id'])).toContain(ids[1])
  expect(before.map((job) => job['id'])).not.toContain(ids[2])
  const many = await project.runWarm(['cancel', '...bbbbbb'])
  expect(many).toMatchObject({
    code: 2,
    err: expect.stringMatching(/several job ids end with \.\.\.bbbbbb: .*\(other, waiting\)/),
  })
  for (const one of ids.slice(1)) expect(many.err).toContain(one)
  // A short mistyped beginning finds no strange job by its end.
  const mistyped = await project.runWarm(['cancel', '1bbbbbb'])
  expect(mistyped).toMatchObject({
    code: 1,
    err: expect.stringMatching(/no job 1bbbbbb.*the end of an id is written …1bb/),
  })
  expect((await project.runWarm(['why', '…abababab'])).err).toContain('the last 100,000 done ones')
  await project.runWarm(['cancel', '--task', 'other', '--yes'])
})

it('jobs distinguishes a delay from a retry', async () => {
  await project.run(['send', 'sync-contact', '{"accountId":"a2"}', '--delay', '1h'])
  const found = (reason: string) => project.runWarm(['jobs', '--state', 'scheduled', '--reason', reason])
  expect((await found('delay')).out).toMatch(/scheduled \(delay\) +sync-contact/)
  expect((await found('retry')).out).toBe('')
})

const mistakes = [
  [['jobs', '--task', 'sync-contcat'], 1, 'did you mean sync-contact?'],
  [['jobs', '--limit', 'cmr', '--key', 'a1'], 1, 'did you mean crm?'],
  [['cancel', '--queue', 'defualt', '--dry-run'], 1, 'did you mean default?'],
  [['pause', '--task', 'sync-contcat', '--reason', 'x'], 1, 'did you mean sync-contact?'],
  [['limits', 'show', 'cmr'], 1, 'did you mean crm?'],
  [['verify', '--limit', 'cmr'], 1, 'did you mean crm?'],
  [['send', 'sync-contact', '--from', 'one.csv'], 2, 'has no rows'],
  [['jobs', '--limit', '5'], 1, '--max <n>'],
  [['jobs', '--key', 'a1'], 2, '"key" without a "limit"'],
  [['limits', 'rekey', 'cmr', '--key', 'a1', '--to', 'a2', '--yes'], 1, 'did you mean crm?'],
  [['verify', '--from', '2h'], 2, '--since'],
  [['enqueue', 'x'], 2, '`sluice send`'],
  [['limits', 'shwo', 'crm'], 2, 'its commands are show, history'],
  [['jobs', 'cancel', '01a1fc6b'], 2, '`sluice cancel`'],
  [['workers'], 2, '`sluice status --members`'],
  [['why', '01a1fc6b-5572-7000-8000-000000000000'], 1, '0000` if it is an event'],
  [['status', 'all'], 2, 'too many arguments'],
] as const
let ran: Ran[] | undefined

it.each(mistakes.map(([args, code, text], n) => ({ args, code, text, n })))(
  '$args is an error that names what is meant',
  async ({ n, code, text }) => {
    project.write('one.csv', 'localhost\n')
    ran ??= await Promise.all(mistakes.map(([args]) => project.runWarm(args)))
    expect(ran[n]).toMatchObject({ code, out: '', err: expect.stringContaining(text) })
  },
)

it('a database that does not exist is named as that', async () => {
  const missing = Object.assign(new URL(url), { pathname: '/nosuch' }).href
  const ran = await project.runWarm(['status', '--store', missing])
  expect(ran).toMatchObject({ code: 3, err: expect.stringContaining('the database does not exist') })
})
