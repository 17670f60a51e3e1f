/** Takes of two limits at once, the usual pair of an account's and the total: all or nothing. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { inspect } from 'node:util'
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { useSluice } from '../../src/default-sluice.ts'
import { limit, takes } from '../../src/index.ts'
import { Sluice } from '../../src/sluice.ts'
import { empty, mainEngines } from '../claim/engine.ts'
import { until } from '../until.ts'
import { unitsUsed } from '../limits/engine.ts'
import { placesTaken, takersInLine } from './engine.ts'

const crm = limit('crm', { window: '10/h', by: 'account' })
const total = limit('total', { window: '12/h' })
const calls = limit('calls', { window: '5000/h' })
const tokens = limit('tokens', { window: '1000/h', by: 'account' })
const seats = limit('seats', { concurrency: 1 })

let moved = 0
const server = createServer((request, response) => {
  request.resume()
  if (request.url === '/moved') {
    moved++
    response.writeHead(302, { location: '/here' }).end()
  } else response.end('here')
})
let base: string
beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
})
afterAll(() => {
  server.closeAllConnections()
  server.close()
})

describe.each(mainEngines)('takes of several limits, on $name', (engine) => {
  let sluice: Sluice
  beforeAll(async () => {
    sluice = await Sluice.open({ store: await engine.store(), allowPrivate: ['127.0.0.1'] })
    useSluice(sluice)
  })
  beforeEach(() => empty(sluice.db))
  afterAll(async () => {
    useSluice(undefined)
    await sluice.close()
  })
  /** Units that each bucket has granted, less those given back. */
  const used = () => unitsUsed(sluice.db)

  it('the pair never leaks past the total, and a denied take is charged in neither', async () => {
    const accounts = ['a', 'b', 'c', 'd']
    const tried = await Promise.all(
      Array.from({ length: 40 }, (_, n) => takes.tryTake([crm, total], { key: accounts[n % 4] as string })),
    )
    const granted = tried.filter((one) => one.granted).length
    expect(granted).toBeLessThanOrEqual(12)
    const { total: all, ...each } = await used()
    expect(all ?? 0).toBe(granted)
    expect(Object.values(each).reduce((sum, units) => sum + units, 0)).toBe(granted)
    // Once the total is used up, an account with room of its own gets nothing either.
    await takes.take(total, { cost: 12 - granted })
    expect(await takes.tryTake([total, crm], { key: 'new' })).toMatchObject({ granted: false })
    expect(await used()).not.toHaveProperty('crm:new')
  })

  it('key and cost are given for all, or by limit', async () => {
    const lease = await takes.take([calls, tokens], { key: { tokens: 'a' }, cost: { tokens: 300 } })
    expect(await used()).toEqual({ calls: 1, 'tokens:a': 300 })
    await lease.giveBack()
    expect(await used()).toEqual({})
    const wrong = [
      [[crm, total], {}, 'SLUICE_MISSING_KEY'],
      [[crm, total], { key: { total: 'a' } }, 'SLUICE_MISSING_KEY'],
      [[crm, total], { key: { crm: 'a', total: 'a' } }, 'SLUICE_BAD_OPTION'],
      [[crm, total], { key: 'a', cost: { cmr: 2 } }, 'SLUICE_BAD_OPTION'],
      [[calls, total], { key: 'a' }, 'SLUICE_BAD_OPTION'],
      [[total, total], {}, 'SLUICE_BAD_OPTION'],
      [[], {}, 'SLUICE_BAD_OPTION'],
      [[calls, total], { signal: 5 } as object, 'SLUICE_BAD_OPTION'],
      [[calls, total], { cost: 13 }, 'SLUICE_COST_ABOVE_CAPACITY'],
    ] as const
    for (const [limits, options, code] of wrong)
      await expect(takes.tryTake(limits, options), JSON.stringify(options)).rejects.toMatchObject({ code })
    expect(await used()).toEqual({})
  })

  it('waits until all have room, and says so when that is too late', async () => {
    const place = await seats.take()
    const waiting = takes.take([calls, seats])
    await until(async () => (await takersInLine(sluice.db)) === 2, 'it waits')
    await place.release()
    const lease = await waiting
    expect(await used()).toEqual({ calls: 1, seats: 2 })
    await lease.release()
    expect(await placesTaken(sluice.db)).toBe(0)
    await takes.take(total, { cost: 12 })
    const late = takes.take([crm, total], { key: 'a', maxWaitMs: 1_000 })
    await expect(late).rejects.toMatchObject({ code: 'SLUICE_TAKE_TIMEOUT', message: expect.stringContaining('crm:a') })
  })

  it('settles each limit by what was used: less is refunded, more is a debt, each once', async () => {
    const lease = await takes.take([calls, tokens], { key: { tokens: 'a' }, cost: { tokens: 300 } })
    await expect(lease.settle(100)).rejects.toMatchObject({ code: 'SLUICE_BAD_OPTION' })
    await expect(lease.settle({ token: 100 })).rejects.toMatchObject({ code: 'SLUICE_BAD_OPTION' })
    const bad: unknown[] = [NaN, -1, 0.5, Infinity, 2 ** 31, '5', null, undefined]
    for (const units of [...bad, ...bad.map((tokens) => ({ tokens }))])
      await expect(lease.settle(units as number), inspect(units)).rejects.toMatchObject({ code: 'SLUICE_BAD_OPTION' })
    await lease.settle({ tokens: 100 })
    await lease.settle({ tokens: 900 })
    expect(await used()).toEqual({ calls: 1, 'tokens:a': 100 })
    const more = await tokens.take({ key: 'b', cost: 300 })
    for (const units of bad)
      await expect(more.settle(units as number), inspect(units)).rejects.toMatchObject({ code: 'SLUICE_BAD_OPTION' })
    await more.settle(450)
    expect(await used()).toEqual({ calls: 1, 'tokens:a': 100, 'tokens:b': 450 })
  })

  it('fetches under both, redirects too, and settles what the response has cost', async () => {
    const init = { key: { tokens: 'a' }, cost: { tokens: 100 } }
    const response = await takes.fetch([calls, tokens], `${base}/moved`, init)
    expect([await response.text(), moved]).toEqual(['here', 1])
    expect(await used()).toEqual({ calls: 2, 'tokens:a': 200 })
    await takes.settle(response, { tokens: 130 })
    expect(await used()).toEqual({ calls: 2, 'tokens:a': 130 })
    await expect(takes.settle(new Response(), 1)).rejects.toMatchObject({ code: 'SLUICE_BAD_OPTION' })
  })

  it('prints no warning with 120 at once, with one signal for all', async () => {
    const warnings: Error[] = []
    const warned = (warning: Error) => void warnings.push(warning)
    process.on('warning', warned)
    onTestFinished(() => void process.off('warning', warned))
    const ending = new AbortController()
    const { signal } = ending
    const options = { key: { tokens: 'many' }, signal }
    const place = await seats.take()
    const waiting = Array.from({ length: 20 }, () => takes.take([calls, seats], { signal }))
    const ended = Promise.allSettled(waiting)
    await until(async () => (await takersInLine(sluice.db)) === 40, 'they wait')
    const fetches = Array.from({ length: 100 }, () => takes.fetch([calls, tokens], `${base}/here`, options))
    for (const response of await Promise.all(fetches)) expect(await response.text()).toBe('here')
    ending.abort(new Error('enough'))
    await ended
    await place.release()
    expect(warnings).toEqual([])
  })
})
