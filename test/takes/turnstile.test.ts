/** The line of takes for the store. */
import { expect, it } from 'vitest'
import { StoreError } from '../../src/core/errors.ts'
import { Turnstile } from '../../src/takes/turnstile.ts'
import { World } from '../outlet/simulated-world.ts'
import { later } from '../until.ts'

const patienceMs = 2_000
const late = () => new Error('too late')

/** One request that holds the way until a test ends it, and a line behind it. */
function stage() {
  const world = new World()
  const turnstile = new Turnstile(1, world.clock(0, 1), patienceMs)
  const passed: string[] = []
  let end: { resolve: () => void; reject: (error: Error) => void } = { resolve() {}, reject() {} }
  const held = later(
    turnstile.pass(() => new Promise<void>((resolve, reject) => (end = { resolve, reject })), { ms: Infinity, late }),
  )
  const enter = (name: string, ms = Infinity, signal?: AbortSignal) =>
    later(turnstile.pass(async () => void passed.push(name), { ms, late, signal }))
  return { world, held, end: () => end, passed, enter }
}

it('a turnstile lets the next one pass, in order, when one has ended', async () => {
  const { held, end, passed, enter } = stage()
  const line = [enter('a'), enter('b')]
  expect(passed).toEqual([])
  end().resolve()
  await Promise.all([held, ...line])
  expect(passed).toEqual(['a', 'b'])
})

it('a turnstile is left by those whose signal aborts, or whose time is over', async () => {
  const { world, held, end, passed, enter } = stage()
  const controller = new AbortController()
  const aborted = enter('aborted', Infinity, controller.signal)
  const over = enter('over', 500)
  const last = enter('last')
  controller.abort(new Error('enough'))
  await expect(aborted).rejects.toThrow('enough')
  await expect(enter('before', 1, controller.signal)).rejects.toThrow('enough')
  await world.runUntil(501)
  await expect(over).rejects.toThrow('too late')
  end().resolve()
  await Promise.all([held, last])
  expect(passed).toEqual(['last'])
})

it('a turnstile lets nobody wait again for a store that has kept them waiting', async () => {
  const { world, held, end, passed, enter } = stage()
  const [first, second] = [enter('first'), enter('second')]
  await world.runUntil(patienceMs)
  const young = enter('young')
  end().reject(new StoreError('SLUICE_STORE_UNREACHABLE', 'no answer in time'))
  for (const one of [held, first, second]) await expect(one).rejects.toThrow('no answer in time')
  await young
  expect(passed).toEqual(['young'])
})
