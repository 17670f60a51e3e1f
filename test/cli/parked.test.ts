import { expect, it, onTestFinished } from 'vitest'
import { Sluice } from '../../src/sluice.ts'
import { freshDatabase } from '../servers/database.ts'
import { until } from '../until.ts'
import { createProject, objects } from './program.ts'

const job = '01970000-0000-7000-8000-000000000001'

/** A store in which a claim has parked a bucket, a lane and a job, in this order. */
async function setting() {
  const { url } = await freshDatabase()
  const sluice = await Sluice.open({ store: url })
  onTestFinished(() => sluice.close())
  await sluice.db.query(`insert into sluice.bucket (id, name, key, parked) values (5, 'crm', 'a 1', true)`)
  await sluice.db.query(
    `insert into sluice.lane (id, class, list, vstart, rank, fair, bound, denied, priority, weight, buckets, costed)
     values (7, 3, 1, 0, 0, 0, 0, 0, 0, 1, '{}', false)`,
  )
  await sluice.db.query(
    `insert into sluice.job (id, lane, priority, created_at, due_at, task, queue)
     values ($1, 8, 0, sluice.now(), 'infinity', 'sync', 'default')`,
    [job],
  )
  await sluice.db.query(
    `insert into sluice.parked (kind, id, job, name, error, code, at) values
       ('bucket', 5, null, 'crm:a 1', 'integer out of range', '22003', '2026-01-02T03:04:05Z'),
       ('lane', 7, null, 'sync in default, lane 7', 'division by zero', '22012', '2026-01-02T03:04:06Z'),
       ('job', null, $1::uuid, $1::text, 'password=hunter2 is no number', null, '2026-01-02T03:04:07Z')`,
    [job],
  )
  return { url, sluice }
}

it('a program lists what is parked, and releases it by name, which wakes the workers', async () => {
  const { sluice } = await setting()
  expect(await sluice.parked()).toEqual([
    {
      kind: 'limit',
      name: 'crm:a 1',
      error: 'integer out of range',
      code: '22003',
      since: new Date('2026-01-02T03:04:05Z'),
    },
    expect.objectContaining({ kind: 'jobs', name: 'sync in default' }),
    expect.objectContaining({ kind: 'job', name: job, code: undefined }),
  ])
  const heard: string[] = []
  onTestFinished(await sluice.db.listen('sluice.wake', (payload) => void heard.push(payload)))
  // The first notification may come before LISTEN is in force.
  await until(async () => {
    await sluice.db.query(`select pg_notify('sluice.wake', 'heard')`)
    return heard.length > 0
  })
  expect(await sluice.release('crm:a 1')).toBe(true)
  await until(() => heard.includes('*'))
  expect(await sluice.release('crm:a 1')).toBe(false)
  expect((await sluice.parked()).map(({ kind }) => kind)).toEqual(['jobs', 'job'])
  // A job that is gone is parked no more.
  expect(await sluice.jobs.cancel(job)).toBe(true)
  expect((await sluice.parked()).map(({ kind }) => kind)).toEqual(['jobs'])
})

it('status and doctor name what is parked, since when, why, and how to release it', async () => {
  const { url } = await setting()
  const project = createProject({ DATABASE_URL: url })
  onTestFinished(() => project.close())
  const text = [
    "limit crm for a 1 since 2026-01-02T03:04:05.000Z (22003: integer out of range), `sluice release --limit crm --key 'a 1'`",
    'jobs of task sync in queue default since 2026-01-02T03:04:06.000Z (22012: division by zero), `sluice release --task sync --queue default`',
    `job ${job} since 2026-01-02T03:04:07.000Z (password=[redacted] is no number), \`sluice release ${job}\``,
  ].join('; ')
  expect((await project.run(['status'])).out).toContain(
    `parked     workers skip these, because the database could not compute with their data: ${text}`,
  )
  const doctor = await project.run(['doctor'])
  expect(doctor.code).toBe(1)
  expect(doctor.out).toMatch(/^fail {2}parked {6}workers skip these/m)
  const bucket = ['release', '--limit', 'crm', '--key', 'a 1']
  expect(await project.run(bucket)).toMatchObject({ code: 0, out: 'crm:a 1 is released\n' })
  expect(await project.runWarm(bucket)).toMatchObject({
    code: 1,
    err: expect.stringContaining('SLUICE_NOT_PARKED'),
  })
  expect((await project.runWarm(['release'])).code).toBe(2)
  for (const args of [
    [job, '--all'],
    ['--key', 'a 1'],
    ['--task', 'sync'],
    ['--limit', 'crm', '--all'],
  ])
    expect(await project.runWarm(['release', ...args])).toMatchObject({
      code: 2,
      err: expect.stringContaining('--task and --queue'),
    })
  expect(objects((await project.runWarm(['release', '--all', '--json'])).out)).toEqual([
    { name: 'sync in default', released: true },
    { name: job, released: true },
  ])
  expect((await project.runWarm(['status'])).out).not.toContain('parked')
  expect((await project.runWarm(['doctor'])).out).toMatch(/^ok {4}parked {6}nothing is parked$/m)
})
