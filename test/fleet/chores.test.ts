/** The chores of maintenance: their order, and how many a round does. */
import { expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import type { Db } from '../../src/db/db.ts'
import { storeOn } from '../../src/db/store.ts'
import { Maintenance } from '../../src/fleet/maintenance.ts'
import { RetentionSettings } from '../../src/fleet/retention.ts'

it('a round does a portion of each due chore, stops in time, continues in the next, and keeps to the agreed hours', async () => {
  let nowMs = 0
  let hour = 3
  let more: unknown = '1'
  const asked: string[] = []
  const clock = { ...systemClock, monotonicMs: () => nowMs, wallMs: () => hour * 3_600_000, random: () => 0 }
  const call = async (_: string, sql: string) => {
    // The work of every 2 s is due all the time here.
    if (sql.includes('setting') || sql.includes('expire_holders')) return []
    asked.push(/sluice_\w+\.(\w+)\(/.exec(sql)?.[1] ?? sql)
    nowMs += 400
    return [{ more }]
  }
  const db = { call } as unknown as Db
  const care = new RetentionSettings(storeOn(db, { clock }), { prune: { at: '03:00', zone: 'UTC', for: 3_600_000 } })
  const maintenance = new Maintenance(storeOn(db, { clock }), care)
  const light = [
    'delete_read_arrivals',
    'recount_waiting',
    'delete_idempotency_keys',
    'delete_learned_costs',
    'delete_lanes',
    'create_partitions',
  ]
  const all = [
    ...light,
    'summarize_partitions',
    'drop_expired_partition',
    'delete_late_jobs',
    'delete_old_ledger',
    'delete_old_usage',
    'delete_old_events',
    'retire_buckets',
  ]
  for (let rounds = 0; rounds < 2; rounds++) {
    asked.length = 0
    await maintenance.run()
    expect(asked).toEqual(['delete_read_arrivals', ...all])
  }
  more = null
  await maintenance.run()
  asked.length = 0
  await maintenance.run()
  expect(asked).toEqual([])
  nowMs += 60_000
  await maintenance.run()
  expect(asked).toEqual(['delete_read_arrivals', 'recount_waiting', 'delete_idempotency_keys'])
  asked.length = 0
  hour = 4
  nowMs += 3_600_000
  await maintenance.run()
  expect(asked).toEqual(light)
  asked.length = 0
  hour = 3
  nowMs += 60_000
  await maintenance.run()
  expect(asked).toEqual(['delete_read_arrivals', 'recount_waiting', 'delete_idempotency_keys', ...all.slice(6)])
})

it('a chore that fails each time does not keep a worker from the others', async () => {
  let nowMs = 0
  const asked: string[] = []
  const call = async (_: string, sql: string) => {
    if (sql.includes('expire_holders')) throw new Error('broken')
    asked.push(sql)
    return []
  }
  const store = storeOn({ call } as unknown as Db, {
    clock: { ...systemClock, monotonicMs: () => nowMs, random: () => 0 },
  })
  const maintenance = new Maintenance(store, new RetentionSettings(store, {}))
  await expect(maintenance.run()).rejects.toThrow('broken')
  nowMs += 2_000
  await maintenance.run()
  expect(asked.filter((sql) => sql.includes('delete_read_arrivals'))).toHaveLength(1)
})
