import { expect, it, onTestFinished } from 'vitest'
import { z } from 'zod'
import { deepChecks } from '../../src/cli/checks.ts'
import { limit } from '../../src/limits/limit.ts'
import { Sluice } from '../../src/sluice.ts'
import { task } from '../../src/tasks/task.ts'
import { claimAll, done, enter } from '../claim/engine.ts'
import { freshDatabase } from '../servers/database.ts'
import { createProject, objects } from './program.ts'

const sync = task('sync', {
  input: z.object({ tenant: z.string() }),
  fair: 'tenant',
  limits: [limit('crm', { window: '1/min', by: 'tenant' })],
  run: () => undefined,
})

/** A store with two jobs of each of two tenants: the first ran, the second waits in the list of its bucket. */
async function setting() {
  const { url } = await freshDatabase()
  const sluice = await Sluice.open({ store: url })
  onTestFinished(() => sluice.close())
  await sluice.define([sync])
  const inputs = ['a', 'b', 'a', 'b'].map((tenant) => ({ tenant }))
  await sluice.sendMany(sync, inputs)
  const by = await enter(sluice.db)
  await done(sluice.db, await claimAll(sluice.db, by, ['sync'], 4))
  const at = { store: { db: sluice.db, url, directUrl: url, owner: false, embedded: false }, schema: 'sluice' }
  return { url, sluice, found: () => deepChecks['waiting']?.(at) }
}

it.each([
  ['the jobs of a key have no turn, or several', 'update sluice.lane set vstart = null'],
  [
    'workers do not look where the jobs are listed, or begin after them',
    'update sluice.list set due = null where id <> 0',
  ],
  [
    'workers do not look where the jobs are listed, or begin after them',
    'update sluice.list set floor = floor + 1e12 where id <> 0',
  ],
  ['workers do not look where the jobs are listed, or begin after them', 'delete from sluice.list where id <> 0'],
  [
    'workers look where no jobs are listed',
    `insert into sluice.list (class, id, floor, due)
    select id, 99, 0, 0 from sluice.class`,
  ],
  ['jobs wait, and no worker looks for them', 'update sluice.lane set list = null, vstart = null'],
  ['jobs wait, and no worker looks for them', 'update sluice.lane set bound = bound + 1000'],
  ['jobs wait, and no worker looks for them', 'delete from sluice.lane'],
])('`doctor --deep` names what is wrong: %s, after %s', async (fault, broken) => {
  const { sluice, found } = await setting()
  expect(await found()).toEqual({ status: 'ok', text: 'workers find every job that waits' })
  await sluice.db.query(broken)
  expect(await found()).toMatchObject({
    status: 'fail',
    text: expect.stringContaining(`${fault} (task sync in queue default: `),
  })
})

it('doctor --deep names a job for which no claim looks, and reprioritise brings it back', async () => {
  const { url, sluice } = await setting()
  const project = createProject({ DATABASE_URL: url })
  onTestFinished(() => project.close())
  // Without a worker, doctor does not wait for heartbeats.
  await sluice.db.query('delete from sluice.worker')
  // Its lane leaves its list, which is empty then.
  const [lost] = await sluice.db.query<{ id: string; lane: string }>(
    `with j as (select id, lane from sluice.job where fair = 'sync:a'),
       l as (update sluice.lane l set list = null, vstart = null from j where l.id = j.lane returning l.class),
       i as (update sluice.list i set due = null from sluice.lane o, j
             where o.id = j.lane and i.class = o.class and i.id = o.list)
     select j.id, j.lane::text from j`,
  )
  const lines = async (...flags: string[]) => objects((await project.run(['doctor', '--json', ...flags])).out)
  expect(await lines()).not.toContainEqual(expect.objectContaining({ check: 'waiting' }))
  const deep = await project.run(['doctor', '--json', '--deep'])
  expect(deep.code).toBe(1)
  expect(objects(deep.out)).toContainEqual({
    check: 'waiting',
    status: 'fail',
    text: expect.stringContaining(
      `the bookkeeping of waiting jobs is broken: jobs wait, and no worker looks for them (task sync in queue default: job ${lost?.id}, row ${lost?.lane} of sluice.lane)`,
    ),
  })
  expect((await project.run(['reprioritise', lost?.id ?? '', '--priority', '1'])).code).toBe(0)
  expect(await lines('--deep')).toContainEqual({
    check: 'waiting',
    status: 'ok',
    text: 'workers find every job that waits',
  })
})
