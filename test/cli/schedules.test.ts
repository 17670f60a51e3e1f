import { afterEach, beforeEach, expect, it } from 'vitest'
import { until } from '../until.ts'
import { Sluice } from '../../src/sluice.ts'
import { freshDatabase } from '../servers/database.ts'
import { createProject, objects, type Project } from './program.ts'

const file = `
import { schedule, scheduledFor, task } from 'sluice'
import { z } from 'zod'
const sync = task('sync-all', {
  input: z.object({ tenant: z.string(), password: z.string().optional() }),
  run: ({ tenant }, { job, log }) => log.info(tenant + ' for ' + scheduledFor(job)?.toISOString()),
})
export const nightly = schedule('nightly-sync', {
  task: sync, cron: '0 3 * * *', zone: 'Europe/Berlin', input: { tenant: 'all', password: 'hunter2' }, overlap: 'skip',
})
export const each = ['a', 'b'].map((tenant) =>
  schedule('second-' + tenant, { task: sync, every: '1s', input: () => ({ tenant }) }))
`
let project: Project

// Each test has a database and a directory of its own.
beforeEach(async () => {
  const { url } = await freshDatabase()
  await (await Sluice.open({ store: url })).close()
  project = createProject({ SLUICE_TASKS: 'tasks.ts', DATABASE_URL: url })
  project.write('tasks.ts', file)
})
afterEach(() => project.close())

it('schedules that a file exports are stored by any worker with that file, fired, listed, run, paused, resumed and removed', async () => {
  const work = project.start(['work'])
  await work.says('working on sync-all, http, and 3 schedules from ')
  await work.says('a for 20')
  await work.says('b for 20')
  const [{ out }, table, run] = await Promise.all([
    project.run(['schedules', '--json']),
    project.run(['schedules']),
    project.run(['schedules', 'trigger', 'nightly-sync']),
  ])
  const [nightly, a] = objects(out)
  expect(nightly).toMatchObject({
    name: 'nightly-sync',
    task: 'sync-all',
    cron: '0 3 * * *',
    zone: 'Europe/Berlin',
    catchUp: 'last',
    overlap: 'skip',
    input: { tenant: 'all', password: '[redacted]' },
    next: Array.from({ length: 5 }, () => expect.stringMatching(/T0[12]:00:00\.000Z$/) as string),
    last: null,
    state: 'active',
  })
  expect(a).toMatchObject({ name: 'second-a', every: '1s', last: { outcome: 'sent' }, state: 'active' })
  expect(a).not.toHaveProperty('input')

  expect(table.out.split('\n').slice(0, 3)).toEqual([
    expect.stringMatching(/^NAME +TASK +WHEN +NEXT +LAST +STATE$/),
    expect.stringMatching(/^nightly-sync +sync-all +0 3 \* \* \* Europe\/Berlin +20\S+:00Z \(in .*\) +active$/),
    expect.stringMatching(/^second-a +sync-all +every 1s +20\S+Z \(.*\) +sent \d.* ago +active$/),
  ])
  expect(run).toMatchObject({ code: 0, err: expect.stringContaining('sluice why') })
  await work.says('all for 20')

  // Nothing is changed unless all names are known.
  expect(await project.runWarm(['schedules', 'pause', 'second-a', 'second-'])).toMatchObject({
    code: 1,
    out: '',
    err: 'error SLUICE_NO_SUCH_SCHEDULE: no schedule "second-" is known; did you mean second-a? `sluice schedules` lists them\n',
  })
  expect(await project.runWarm(['schedules', 'resume', 'second-a'])).toMatchObject({
    code: 1,
    err: expect.stringContaining('SLUICE_NOT_PAUSED: not paused: "second-a"'),
  })
  const shown = () => project.runWarm(['schedules', 'show', 'second-a', '--max', '2'])
  await until(async () => (await shown()).out.split(' sent ').length === 3, 'it was fired twice')
  expect(await project.runWarm(['schedules', 'pause', 'second-a'])).toMatchObject({ code: 0, out: 'second-a paused\n' })
  const show = await shown()
  expect(show.out).toMatch(/^second-a\ntask +sync-all\nwhen +every 1s\nstate +paused\ncatchUp +last\n/)
  expect(show.out).toMatch(/\n {2}20\S+Z {2}sent {2}[0-9a-f-]{36}\n {2}20\S+Z {2}sent {2}[0-9a-f-]{36}\n$/)
  expect(objects((await project.runWarm(['schedules', 'resume', 'second-a', '--json'])).out)).toEqual([
    { name: 'second-a', resumed: true },
  ])
  work.signal('SIGTERM')
  await work.ended
  expect(await project.runWarm(['schedules', 'remove', 'second-a', 'second-b'])).toMatchObject({ code: 0 })
  expect(objects((await project.runWarm(['schedules', '--json'])).out).map(({ name }) => name)).toEqual([
    'nightly-sync',
  ])
}, 300_000)

it('a faulty schedule is reported with its place', async () => {
  project.write('tasks.ts', file.replace('0 3 * * *', '0 25 * * *'))
  expect(await project.run(['dispatch', '--once'])).toMatchObject({
    code: 2,
    err: expect.stringMatching(/SLUICE_BAD_SCHEDULE[^]*schedule "nightly-sync": `cron` "0 25 \* \* \*" cannot be read/),
  })
  project.write('tasks.ts', file)
  expect(await project.runWarm(['schedules', 'trigger', 'none'])).toMatchObject({
    code: 1,
    err: expect.stringContaining('known are second-a, second-b, nightly-sync'),
  })
  expect(await project.runWarm(['schedules', 'trigger', 'nightly-sink'])).toMatchObject({
    code: 1,
    err: expect.stringContaining('did you mean nightly-sync?'),
  })
  project.write('plain.ts', `import { task } from 'sluice'\nexport const plain = task('plain', { run: () => {} })`)
  expect(await project.runWarm(['schedules', 'trigger', 'nightly-sync', '--tasks', 'plain.ts'])).toMatchObject({
    code: 1,
    err: expect.stringContaining('this command has no code of schedule "nightly-sync": give the file that exports'),
  })
  expect(await project.runWarm(['schedules'])).toMatchObject({
    out: '',
    err: expect.stringContaining('no schedules are stored'),
  })
  expect(await project.runWarm(['schedules', 'show', 'none'])).toMatchObject({
    code: 1,
    err: expect.stringContaining('SLUICE_NO_SUCH_SCHEDULE'),
  })
}, 300_000)
