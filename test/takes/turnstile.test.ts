/** The line of takes for the store. */
import { expect, it } from 'vitest'
import { StoreError } from '../../src/core/errors.ts'
import { Turnstile } from '../../src/takes/turnstile.ts'
import { World } from '../outlet/simulated-world.ts'
import { later } from '../until.ts'

const patienceMs = 2_000
const late = () => new Error('too late')

/** A request that holds the way until a test ends it, and a line behind it. */
function stage(together = 1, most = 1) {
  const world = new World()
  /** The statements, each with its requests. */
  const passed: string[] = []
  let end: { resolve: () => void; reject: (error: Error) => void } = { resolve() {}, reject() {} }
  const send = async (requests: readonly string[]) => {
    if (requests.includes('first of all')) await new Promise<void>((resolve, reject) => (end = { resolve, reject }))
    else passed.push(requests.join())
    return requests.map((name) => `answer to ${name}`)
  }
  const isOld = (answer: string) => answer === 'answer to old'
  const clock = world.clock(0, 1)
  const turnstile = new Turnstile({ most, mostOfKind: 1, together, clock, patienceMs, send, isOld })
  const enter = (name: string, ms = Infinity, signal?: AbortSignal, kind = 'kind') =>
    later(turnstile.pass(kind, name, { ms, late, signal }))
  const enterAt = (place: number, name: string) => later(turnstile.pass('kind', name, { place, ms: Infinity, late }))
  const held = enter('first of all')
  return { world, turnstile, held, end: () => end, passed, enter, enterAt }
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

it('those of a kind that the store does not answer fail together, while it answers other kinds', async () => {
  const { world, held, end, passed, enter } = stage(1, 3)
  const [{ reject }, behind] = [end(), enter('behind')]
  const others = ['first of all', 'other'].map((name) => enter(name, Infinity, undefined, 'other kind'))
  await world.runUntil(patienceMs)
  await enter('third', Infinity, undefined, 'third kind')
  reject(new StoreError('SLUICE_STORE_UNREACHABLE', 'no answer in time'))
  for (const one of [held, behind]) await expect(one).rejects.toThrow('no answer in time')
  end().resolve()
  await Promise.all(others)
  expect(passed).toEqual(['third', 'other'])
})

it('those that wait with a place are known, until it is their turn', async () => {
  const { turnstile, held, end, enter, enterAt } = stage()
  const line = [enterAt(2, 'second'), enter('new'), enterAt(1, 'first')]
  expect(turnstile.placed).toEqual(['second', 'first'])
  end().resolve()
  await Promise.all([held, ...line])
  expect(turnstile.placed).toEqual([])
})

it('more and more requests of one kind that wait go together, in order, each with its own answer', async () => {
  const { held, end, passed, enter } = stage(3)
  const names = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h']
  const line = names.map((name) => enter(name, Infinity, undefined, name === 'c' ? 'other' : 'kind'))
  end().resolve()
  await held
  expect(await Promise.all(line)).toEqual(names.map((name) => `answer to ${name}`))
  expect(passed).toEqual(['a,b', 'c', 'd,e,f', 'g,h'])
})

it('many requests of one kind do not hold up those of another', async () => {
  const { held, end, passed, enter } = stage(2)
  const line = ['a', 'b', 'c', 'd', 'e'].map((name) => enter(name))
  const others = ['x', 'y'].map((name) => enter(name, Infinity, undefined, 'other'))
  end().resolve()
  await Promise.all([held, ...line, ...others])
  expect(passed).toEqual(['a,b', 'x', 'c,d', 'y', 'e'])
})

it('fewer requests go together after an answer that is old', async () => {
  const { held, end, passed, enter } = stage(4)
  const line = ['a', 'b', 'c', 'd', 'old', 'e', 'f', 'g', 'h'].map((name) => enter(name))
  end().resolve()
  await Promise.all([held, ...line])
  expect(passed).toEqual(['a,b', 'c,d,old', 'e', 'f,g', 'h'])
})

it('the old answers of one kind do not take apart the requests of another', async () => {
  const { held, end, passed, enter } = stage(4)
  const names = ['a', 'b', 'old', 'c', 'd', 'e', 'x', 'f', 'g', 'h', 'i', 'y']
  const line = names.map((name) =>
    enter(name, Infinity, undefined, ['old', 'x', 'y'].includes(name) ? 'other' : 'kind'),
  )
  end().resolve()
  await Promise.all([held, ...line])
  expect(passed).toEqual(['a,b', 'old', 'c,d,e', 'x', 'f,g,h,i', 'y'])
})

it('requests that go together fail together', async () => {
  const { held, end, passed, enter } = stage(2)
  const both = [enter('first of all'), enter('a'), enter('b')].map((one) => one.catch((error: Error) => error.message))
  end().resolve()
  await held
  end().reject(new Error('no'))
  expect(await Promise.all(both)).toEqual(['no', 'no', 'answer to b'])
  expect(passed).toEqual(['b'])
})

it('those with the smallest places go first, those without one beside them, and each may leave the other more', async () => {
  const { held, end, passed, enter, enterAt } = stage(4)
  const far = [9, 8, 7, 6, 5].map((place) => enterAt(place, `${place}`))
  const others = ['a', 'b', 'c', 'd', 'e', 'f', 'g'].map((name) => enter(name))
  const near = [3, 2, 1].map((place) => enterAt(place, `${place}`))
  end().resolve()
  await Promise.all([held, ...far, ...others, ...near])
  expect(passed).toEqual(['1,a', '2,3,b,c', '5,6,d,e', '7,8,f,g', '9'])
})

it('neither those with a place nor those without one wait for ever, if others come again and again', async () => {
  const { held, end, passed, enter, enterAt } = stage()
  const isPassed = { last: false, other: false }
  const last = enterAt(9, 'last').then(() => (isPassed.last = true))
  const other = enter('other').then(() => (isPassed.other = true))
  const again = async (come: () => Promise<unknown>, until: keyof typeof isPassed) => {
    for (let i = 0; i < 100 && !isPassed[until]; i++) await Promise.all([come(), come()])
  }
  const rounds = [again(() => enter('new'), 'last'), again(() => enterAt(1, 'near'), 'other')]
  end().resolve()
  await Promise.all([held, last, other, ...rounds])
  expect(passed[0]).toBe('near,other')
})

it('those that wait long for their turn go on waiting when one statement fails, while the store answers others', async () => {
  const { world, held, end, passed, enterAt } = stage()
  const far = enterAt(2, 'far')
  await world.runUntil(patienceMs)
  const failing = enterAt(1, 'first of all')
  end().resolve()
  await held
  end().reject(new StoreError('SLUICE_STORE_UNREACHABLE', 'the connection is lost'))
  await expect(failing).rejects.toThrow('the connection is lost')
  await far
  expect(passed).toEqual(['far'])
})
