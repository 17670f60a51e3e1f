/** Sends with a key or id of another, open transaction: they wait for its end, and no other send waits with them. */
import pg from 'pg'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { newId } from '../../src/core/hash.ts'
import type { SendOptions } from '../../src/tasks/send-options.ts'
import { Sluice } from '../../src/sluice.ts'
import { claimAll, emptied, engines, quietTask } from '../claim/engine.ts'
import { later, until } from '../until.ts'
import { calls } from './calls.ts'
import { jobsLeft, sendCalls } from './engine.ts'

const quiet = quietTask('quiet')

describe('while another transaction has a key or an id', () => {
  const [postgres] = engines
  const at = emptied(postgres)
  const ends: (() => Promise<unknown>)[] = []
  // Before the next test empties the tables that they may hold.
  afterEach(async () => {
    for (const end of ends.splice(0).toReversed()) await end()
  })

  const begin = async () => {
    const client = new pg.Client(at.sluice.url)
    await client.connect()
    ends.push(() => client.end())
    await client.query('begin')
    return client
  }
  /** The state of a promise so far. */
  const watched = <T>(promise: Promise<T>) => {
    const state = { isOver: false, promise: later(promise) }
    const over = () => void (state.isOver = true)
    promise.then(over, over)
    return state
  }
  const inputs = async () => {
    const jobs = await claimAll(at.db, at.worker, ['quiet'], 20)
    return jobs.map(({ input }) => (input as { n: number }).n)
  }

  it.each([
    ['a key', { idempotencyKey: 'k' }],
    ['an id', { id: newId() }],
    ['a key to replace', { idempotencyKey: 'k', replace: true }],
  ])('a send of %s waits alone', async (_, options) => {
    const tx = await begin()
    const { replace, ...own }: SendOptions = options
    const theirs = await at.sluice.send(quiet, { n: 0 }, { ...own, tx })
    const held = watched(at.sluice.send(quiet, { n: 1 }, options))
    await at.sluice.send(quiet, { n: 2 })
    await at.sluice.send(quiet, { n: 3 }, { idempotencyKey: 'other' })
    await at.sluice.send(quiet, { n: 4 }, { idempotencyKey: 'another', replace: true })
    await at.sluice.send(quiet, { n: 5 }, { id: newId() })
    expect(held.isOver).toBe(false)
    await tx.query('commit')
    expect(await held.promise).toBe(theirs)
    expect((await inputs()).toSorted((a, b) => a - b)).toEqual([replace ? 1 : 0, 2, 3, 4, 5])
  })

  it('a transaction may send outside of itself before its end without a deadlock', async () => {
    await at.sluice.transaction(async (tx) => {
      await at.sluice.send(quiet, { n: 0 }, { tx, idempotencyKey: 'k' })
      const held = watched(at.sluice.send(quiet, { n: 1 }, { idempotencyKey: 'k' }))
      ends.push(() => held.promise)
      await at.sluice.send(quiet, { n: 2 })
      expect(held.isOver).toBe(false)
    })
    await ends.pop()?.()
    expect((await inputs()).toSorted((a, b) => a - b)).toEqual([0, 2])
  })

  it('many waiting sends hold no connections, so that others still send', async () => {
    const few = await Sluice.open({ store: at.sluice.url as string, connections: 2 })
    ends.push(() => few.close())
    const tx = await begin()
    const keys = ['a', 'b', 'c', 'd']
    for (const key of keys) await at.sluice.send(quiet, { n: 0 }, { tx, idempotencyKey: key })
    const keyed = (options: object) =>
      keys.map((idempotencyKey) => watched(few.send(quiet, { n: 1 }, { idempotencyKey, ...options })))
    const rows = (options: object) =>
      keys.map((idempotencyKey) =>
        watched(
          few.sendRows(quiet, [{ n: 2 }], { read: (input) => ({ input, options: { idempotencyKey, ...options } }) }),
        ),
      )
    const held = [...keyed({}), ...rows({}), ...keyed({ replace: true }), ...rows({ replace: true })]
    await few.send(quiet, { n: 3 })
    await few.sendMany(quiet, [{ n: 3 }])
    expect(held.some(({ isOver }) => isOver)).toBe(false)
    await tx.query('rollback')
    await Promise.all(held.map(({ promise }) => promise))
    expect(await jobsLeft(at.db)).toBe(keys.length + 2)
  })

  it('of many sends with ids, the one that waits makes few statements of the others', async () => {
    const tx = await begin()
    const id = newId()
    await at.sluice.send(quiet, { n: 0 }, { tx, id })
    const send = (n: number, own = newId()) => at.sluice.send(quiet, { n }, { id: own })
    const held: ReturnType<typeof watched>[] = []
    // All together, again all together, and then by halves: the 100th waits again in each part of which it is one.
    const called = await calls(at.db, sendCalls.general, async () => {
      const others = Array.from({ length: 200 }, (_, n) =>
        n === 100 ? (held.push(watched(send(n, id))), []) : send(n),
      )
      await Promise.all(others.flat())
    })
    expect(called).toBeLessThanOrEqual(2 + 2 * Math.ceil(Math.log2(200)))
    expect(held[0]?.isOver).toBe(false)
    await tx.query('commit')
    expect(await held[0]?.promise).toBe(id)
    expect(await jobsLeft(at.db)).toBe(200)
  })

  it('a send beside a hundred that wait, with one of them in its batch, is recorded after few statements', async () => {
    const tx = await begin()
    const ids = Array.from({ length: 100 }, () => newId())
    for (const id of ids) await at.sluice.send(quiet, { n: 0 }, { tx, id })
    const held = ids.slice(1).map((id) => watched(at.sluice.send(quiet, { n: 1 }, { id })))
    const spy = vi.spyOn(at.db, 'call')
    const tries = () => spy.mock.calls.filter(([name]) => name === sendCalls.general).length
    await until(() => tries() > 2 * held.length, 'each of them has waited alone')
    spy.mockRestore()
    const called = await calls(at.db, sendCalls.general, async () => {
      held.push(watched(at.sluice.send(quiet, { n: 1 }, { id: ids[0] as string })))
      await at.sluice.send(quiet, { n: 2 }, { id: newId() })
    })
    expect(called).toBeLessThanOrEqual(12)
    expect(held.some(({ isOver }) => isOver)).toBe(false)
    await tx.query('commit')
    await Promise.all(held.map(({ promise }) => promise))
    expect(await jobsLeft(at.db)).toBe(101)
  })

  it('sends of one caller with one key keep their order, and one job is recorded', async () => {
    const tx = await begin()
    await at.sluice.send(quiet, { n: 0 }, { tx, idempotencyKey: 'k' })
    const send = (n: number, options = {}) => at.sluice.send(quiet, { n }, options)
    const first = later(send(1, { idempotencyKey: 'k' }))
    await Promise.all([send(2), send(3)])
    const second = later(send(4, { idempotencyKey: 'k' }))
    await send(5)
    await tx.query('rollback')
    expect(await second).toBe(await first)
    expect(await inputs()).toEqual([2, 3, 5, 1])
  })
})
