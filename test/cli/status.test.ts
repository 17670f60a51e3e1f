import { expect, it, onTestFinished } from 'vitest'
import { z } from 'zod'
import { aboutOf } from '../../src/cli/status.ts'
import { Sluice } from '../../src/sluice.ts'
import { limit } from '../../src/limits/limit.ts'
import { task } from '../../src/tasks/task.ts'
import { freshDatabase } from '../servers/database.ts'
import { until } from '../until.ts'
import { createProject, objects } from './program.ts'

const [known, lost] = ['known', 'lost'].map((name) => task(name, { input: z.object({}), run() {} })) as never as [
  ReturnType<typeof task>,
  ReturnType<typeof task>,
]

it('status calls a number an estimate only if it is one', () => {
  const counted = [10_000, 10_001, 10_002].map((count) => aboutOf(count, 10_000))
  expect(counted).toEqual(['10000', 'more than 10000', 'about 10002'])
})

it('with --json a command prints the fields that the same call of a program returns', async () => {
  const { url } = await freshDatabase()
  const sluice = await Sluice.open({ store: url })
  const project = createProject({ DATABASE_URL: url })
  onTestFinished(async () => {
    await sluice.close()
    await project.close()
  })
  await sluice.pause({ queue: 'held*' }, { reason: 'a test' })
  const limited = task('limited', { limits: [limit('crm', { rate: '5/s' })], run() {} })
  const id = await sluice.send(limited, {}, { queue: 'held' })
  const calls: [string[], object | undefined][] = [
    [['jobs'], (await sluice.jobs.list())[0]],
    [['jobs', 'show', id], await sluice.jobs.get(id)],
    [['why', id], await sluice.why(id)],
    [['limits', 'history', 'crm'], (await sluice.limits.history('crm'))[0]],
    [['verify'], await sluice.verify()],
  ]
  for (const [args, value] of calls) {
    const { out } = await project.runWarm([...args, '--json'])
    const fields = Object.keys(JSON.parse(JSON.stringify(value)) as object)
    expect(Object.keys(objects(out)[0] ?? {}).toSorted(), args.join(' ')).toEqual(fields.toSorted())
  }
})

it('status lists the alarms that are raised, since when, and what to do, until their cause is gone', async () => {
  const { url } = await freshDatabase()
  const sluice = await Sluice.open({ store: url, alarms: { noWorker: 1 } })
  const project = createProject({ DATABASE_URL: url })
  onTestFinished(async () => {
    await sluice.close()
    await project.close()
  })
  const id = await sluice.send(lost, {})
  await sluice.work([known])
  await until(async () => {
    const rows = await sluice.db.query('select 1 from sluice.alarm where raised')
    return rows.length > 0
  }, 'an alarm')
  const [{ out }, json] = await Promise.all([project.run(['status']), project.run(['status', '--json'])])
  expect(out).toMatch(
    /^alarm +since 20\S+Z: no live worker can run task lost in queue default; a job has waited for .*: start a worker/m,
  )
  expect(objects(json.out)[0]).toMatchObject({
    problems: [],
    alarms: [
      {
        alarm: 'no-worker',
        subject: 'lost in default',
        value: expect.any(Number),
        since: expect.stringMatching(/Z$/),
        text: expect.stringContaining('no live worker can run task lost'),
        todo: expect.stringContaining('start a worker'),
      },
    ],
  })
  // The fleet records the end of an alarm only later.
  await sluice.jobs.cancel(id)
  expect(objects((await project.run(['status', '--json'])).out)[0]).toMatchObject({ alarms: [] })
})
