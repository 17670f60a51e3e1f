import { afterEach, expect, it } from 'vitest'
import { z } from 'zod'
import { deepChecks } from '../../src/cli/checks.ts'
import { limit } from '../../src/limits/limit.ts'
import { Sluice } from '../../src/sluice.ts'
import { task } from '../../src/tasks/task.ts'
import { claimAll, done, enter } from '../claim/engine.ts'
import { freshDatabase } from '../servers/database.ts'
import { createProject, objects } from './program.ts'

const ends: (() => unknown)[] = []
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end()
})

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
  ends.push(() => sluice.close())
  await sluice.define([sync])
  const inputs = ['a', 'b', 'a', 'b'].map((tenant) => ({ tenant }))
  await sluice.sendMany(sync, inputs)
  const by = await enter(sluice.db)
  await done(sluice.db, await claimAll(sluice.db, by, ['sync'], 4))
  const at = { store: { db: sluice.db, url, directUrl: url, owner: false, embedded: false }, schema: 'sluice' }
  return { url, sluice, found: () => deepChecks['lanes']?.(at) }
}

it.each([
  ['its fair key has no turn there, or several', 'update sluice.lane set vstart = null'],
  ['claims do not read this list, or begin after the lane', 'update sluice.list set due = null where id <> 0'],
  [
    'claims do not read this list, or begin after the lane',
    'update sluice.list set floor = floor + 1e12 where id <> 0',
  ],
  ['claims do not read this list, or begin after the lane', 'delete from sluice.list where id <> 0'],
  [
    'claims read this list, and no lane stands in it',
    `insert into sluice.list (class, id, floor, due)
    select id, 99, 0, 0 from sluice.class`,
  ],
  ['jobs wait, and claims do not look for them', 'update sluice.lane set list = null, vstart = null'],
  ['jobs wait, and claims do not look for them', 'update sluice.lane set bound = bound + 1000'],
  ['jobs wait, and claims do not look for them', 'delete from sluice.lane'],
])('names what is wrong: %s, after %s', async (fault, broken) => {
  const { sluice, found } = await setting()
  expect(await found()).toEqual({ status: 'ok', text: 'claims find every lane in which jobs wait' })
  await sluice.db.query(broken)
  expect(await found()).toMatchObject({ status: 'fail', text: expect.stringContaining(`${fault} (sync in default, `) })
})

it('doctor --deep names a job for which no claim looks, and reprioritise brings it back', async () => {
  const { url, sluice } = await setting()
  const project = createProject({ DATABASE_URL: url })
  ends.push(() => project.close())
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
  expect(await lines()).not.toContainEqual(expect.objectContaining({ check: 'lanes' }))
  const deep = await project.run(['doctor', '--json', '--deep'])
  expect(deep.code).toBe(1)
  expect(objects(deep.out)).toContainEqual({
    check: 'lanes',
    status: 'fail',
    text: `the bookkeeping of lanes is broken: jobs wait, and claims do not look for them (sync in default, lane ${lost?.lane}, job ${lost?.id})`,
  })
  expect((await project.run(['reprioritise', lost?.id ?? '', '--to', '1'])).code).toBe(0)
  expect(await lines('--deep')).toContainEqual({
    check: 'lanes',
    status: 'ok',
    text: 'claims find every lane in which jobs wait',
  })
})
