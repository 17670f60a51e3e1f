/** Takes from a store that is away, or whose replies are lost. */
import { afterAll, expect, it } from 'vitest'
import { limit } from '../../src/limits/limit.ts'
import { type Log, Sluice } from '../../src/index.ts'
import { freshDatabase } from '../servers/database.ts'
import { isReady, startProxy } from '../servers/proxy.ts'
import { until } from '../until.ts'
import { heldUntilUs, placesTaken } from './engine.ts'

const ends: (() => Promise<unknown>)[] = []
afterAll(async () => {
  for (const end of ends.toReversed()) await end()
})

async function behind() {
  const { url } = await freshDatabase()
  const proxy = await startProxy({ port: Number(new URL(url).port) })
  const lines: string[] = []
  const log: Log = { debug() {}, info: (line) => lines.push(line), warn: (line) => lines.push(line), error() {} }
  const sluice = await Sluice.open({ store: proxy.url(url), log })
  ends.push(
    () => proxy.close(),
    () => sluice.close(),
  )
  return { proxy, sluice, lines, url }
}

it('without the store a limit is closed or open as defined, and uncharged takes are counted, and logged once', async () => {
  const { proxy, sluice, lines } = await behind()
  const shut = limit('shut', { rate: '1000/s' })
  const open = limit('open', { rate: '1000/s', burst: 1_000, onStoreError: 'open' })
  for (const each of [shut, open]) expect(await sluice.takes.take(each)).toMatchObject({ isUncharged: false })
  await proxy.refuse()
  proxy.reset()
  await expect(sluice.takes.tryTake(shut)).rejects.toMatchObject({ code: 'SLUICE_STORE_UNREACHABLE' })
  await expect(sluice.takes.take(shut, { maxWaitMs: 100 })).rejects.toMatchObject({ code: 'SLUICE_STORE_UNREACHABLE' })
  expect(lines.filter((line) => line.includes('does not answer'))).toEqual([])
  for (let n = 0; n < 3; n++) {
    const tried = await sluice.takes.tryTake(open)
    expect(tried).toMatchObject({ granted: true, lease: { isUncharged: true, freshForMs: Infinity } })
    await tried.lease?.release()
    await tried.lease?.giveBack()
  }
  expect(await sluice.takes.take(open)).toMatchObject({ isUncharged: true })
  expect(sluice.takes.uncharged).toBe(4)
  expect(lines.filter((line) => line.includes('does not answer'))).toHaveLength(1)
  await proxy.pass()
  await until(async () => (await sluice.takes.tryTake(open)).lease?.isUncharged === false, 'it is charged again')
  expect(lines.filter((line) => line.includes('answers again'))).toHaveLength(1)
  expect(() => limit('odd', { rate: '1/s', onStoreError: 'ajar' as never })).toThrow('closed')
})

it('a take ends soon after its longest wait, also while the store is silent over each connection', async () => {
  const { proxy, sluice } = await behind()
  const shut = limit('shut', { rate: '1000/s' })
  const open = limit('open', { rate: '1000/s', onStoreError: 'open' })
  for (const each of [shut, open]) await sluice.takes.take(each)
  proxy.halfOpen()
  const over: string[] = []
  const note = (what: string) => () => void over.push(what)
  // It sends two requests, and waits for each answer.
  const tried = sluice.takes.tryTake(shut).catch((error: unknown) => error)
  const taken = sluice.takes.take(shut, { maxWaitMs: 100 }).catch((error: unknown) => error)
  const opened = sluice.takes.take(open, { maxWaitMs: 100 })
  void tried.then(note('tried'))
  void taken.then(note('taken'))
  expect(await taken).toMatchObject({ code: 'SLUICE_STORE_UNREACHABLE' })
  expect(await opened).toMatchObject({ isUncharged: true })
  expect(over).toEqual(['taken'])
  await proxy.pass()
  await tried
})

it('a take whose reply was lost is repeated, and charges nothing twice', async () => {
  const { proxy, sluice } = await behind()
  const seats = limit('seats', { concurrency: 2 })
  await (await sluice.takes.take(seats)).release()
  const lost = proxy.swallow({
    when: (request) => request.includes('\0acquire_grants\0'),
    leave: 'closed',
    until: isReady,
  })
  const lease = await sluice.takes.take(seats)
  await lost
  expect(await placesTaken(sluice.db)).toBe(1)
  await lease.release()
  expect(await placesTaken(sluice.db)).toBe(0)
  await sluice.takes.take(seats)
})

it('a place outlives a half-open connection over which it was renewed', async () => {
  const { proxy, sluice, url } = await behind()
  const near = await Sluice.open({ store: url })
  ends.push(() => near.close())
  const lease = await sluice.takes.take(limit('rooms', { concurrency: 2 }))
  const { signal } = lease
  const before = await heldUntilUs(near.db)
  proxy.strand()
  await until(async () => signal.aborted || (await heldUntilUs(near.db)) > before, 'it is renewed')
  expect(signal.reason).toBe(undefined)
  await lease.release()
})
