/** The recorded numbers of waiting jobs, which alarms and estimates read, beside the jobs that wait. */
import { describe, expect, it } from 'vitest'
import { sqlOn } from '../../src/db/store.ts'
import { copies } from '../rows.ts'
import { claim, count, emptied, finish, mainEngines, perTenant, quietTask } from './engine.ts'
import { recountWaiting } from './engine-parts.ts'

describe.each(mainEngines)('a recount, on $name', (engine) => {
  const at = emptied(engine)
  const each = quietTask('counted', [perTenant('counted', '1000000/s', 1_000_000)])
  const send = (n: number, tenant: string, tag = 'stays') =>
    at.sluice.sendMany(each, copies(n, { tenant }), { tags: [tag] })
  const take = async (want: number) => (await claim(at.db, at.worker, [each.name], want)).jobs
  const leave = (tag: string) => at.sluice.jobs.cancelMany({ tag })
  /** With those whose arrivals no claim has read. */
  const recorded = async () => {
    const rows = await sqlOn(at.db).run<{ n: number }>('operations/read_waiting_classes', [10])
    return rows.reduce((sum, { n }) => sum + n, 0)
  }
  const waiting = () => count(at.db, 'sluice.job where claim is null and due_at is null')

  it('takes off what left without a claim, whether claims have read of its arrival or not', async () => {
    await send(6, 'a')
    await send(3, 'b')
    await send(3, 'b', 'read')
    const taken = await take(4)
    await send(3, 'a')
    await send(1, 'a', 'unread')
    await finish(
      at.db,
      taken.slice(2).map((job) => ({ job, outcome: 'return' })),
    )
    await leave('read')
    await leave('unread')
    expect([await recorded(), await waiting()]).toEqual([14, 10])
    await recountWaiting(at.db)
    expect(await recorded()).toBe(10)
    expect(await take(1)).toHaveLength(1)
    expect(await recorded()).toBe(9)
    const states = () => count(at.db, 'sluice.class_state')
    const before = await states()
    await recountWaiting(at.db)
    expect(await states()).toBe(before)
  })

  it('beside claims, sends and cancels changes no number that is right', async () => {
    for (let i = 0; i < 20; i++)
      await Promise.all([
        send(3, `t${i % 4}`),
        send(2, `t${i % 3}`, 'gone'),
        take(2),
        recountWaiting(at.db),
        leave('gone'),
      ])
    // Reads what has arrived, and ends when some jobs still wait.
    await take(1)
    await leave('gone')
    await recountWaiting(at.db)
    expect(await waiting()).toBeGreaterThan(10)
    expect(await recorded()).toBe(await waiting())
  })
})
