/** Renewals of places, in simulated time. */
import { expect, it } from 'vitest'
import { StoreClock, readMoment } from '../../src/core/clock.ts'
import { silent } from '../../src/core/log.ts'
import type { Store } from '../../src/db/store.ts'
import { LeaseHolder } from '../../src/takes/lease-holder.ts'
import { World } from '../outlet/simulated-world.ts'

it('a place whose grant was answered late is renewed in time', async () => {
  const world = new World()
  const clock = world.clock(0, 1)
  const call = async () => [{ now_us: '0', life_us: '15000000', held: ['g'] }]
  const holder = new LeaseHolder({ clock, log: silent, call } as unknown as Store, new StoreClock())
  const lost: string[] = []
  const requestedAt = readMoment(clock)
  await world.runUntil(9_900)
  holder.hold('g', requestedAt, 15_000, ({ message }) => lost.push(message))
  await world.runUntil(60_000)
  expect(lost).toEqual([])
  expect(holder.isOver).toBe(false)
})
