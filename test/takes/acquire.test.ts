import { expect, it } from 'vitest'
import { readMoment, StoreClock, systemClock } from '../../src/core/clock.ts'
import { StoreError } from '../../src/core/errors.ts'
import type { Store } from '../../src/db/store.ts'
import type { PeerLimiter } from '../../src/limits/peer.ts'
import { Acquirer, type StoreAnswer } from '../../src/takes/acquire.ts'
import type { GrantLoop } from '../../src/takes/grant-loop.ts'
import { Leases } from '../../src/takes/leases.ts'
import type { TakeRequest } from '../../src/takes/take-request.ts'
import { chargeAgainCall } from '../limits/engine.ts'
import { World } from '../outlet/simulated-world.ts'
import { later } from '../until.ts'

it('a request is charged once more in the store first, because what the second limiter loses is built from there', async () => {
  const charged: string[] = []
  let fails = false
  const call = async () => {
    charged.push('store')
    await new Promise(setImmediate)
    if (fails) throw new Error('the store is away')
    return [{ [chargeAgainCall]: 'e' }]
  }
  const chargeAgain = async (takes: readonly string[], units: readonly number[], epoch: string | undefined) =>
    void charged.push(`${takes.join()} ${units.join()} under ${epoch}`)
  const store = { clock: systemClock, call } as unknown as Store
  const acquirer = new Acquirer(store, new StoreClock(), { chargeAgain } as unknown as PeerLimiter)
  const charge = () => acquirer.chargeAgain(['crm:a', 'total', 'free'], [2, 3, 0], new Set(['crm', 'free']))
  await charge()
  expect(charged).toEqual(['store', 'crm:a 2 under e'])
  fails = true
  await expect(charge()).rejects.toThrow('the store is away')
  expect(charged).toEqual(['store', 'crm:a 2 under e', 'store'])
})

it('a slow request is charged once more though the data of one of its buckets are broken: that one is parked', async () => {
  const told: ('charge' | 'park')[] = []
  const call = async (name: string) => {
    told.push(name === chargeAgainCall ? 'charge' : 'park')
    if (name !== chargeAgainCall) return [{ [name]: ['crm:a'] }]
    if (told.length === 1) throw Object.assign(new Error('bigint out of range'), { code: '22003' })
    return []
  }
  const store = { clock: systemClock, call } as unknown as Store
  await new Acquirer(store, new StoreClock(), undefined).chargeAgain(['crm:a'], [2], new Set(['crm']))
  expect(told).toEqual(['charge', 'park', 'charge'])
})

it('a second limiter confirms a grant ahead of time for its instant, and the later of both instants counts', async () => {
  const asked: object[] = []
  let notBeforeMs = 0
  const confirm = async (request: object) => {
    asked.push(request)
    return { id: 'g', decisions: [{ granted: 1, fromMs: 150, notBeforeMs, waitMs: 0, lacking: undefined }] }
  }
  const store = { clock: systemClock } as unknown as Store
  const request = { pending: { id: 'a' }, buckets: ['crm'], units: [1], back: undefined }
  const answer = { redis_epoch: 'e', decidedMs: 100, fromMs: 150, notBeforeMs: 170, fresh_us: '20000' } as StoreAnswer
  const both = new Acquirer(store, new StoreClock(), { confirm } as unknown as PeerLimiter)
  for (const [thereMs, latestMs] of [
    [0, 170],
    [190, 190],
  ] as const) {
    notBeforeMs = thereMs
    expect(await both.confirm(request, answer)).toMatchObject({ fromMs: 150, notBeforeMs: latestMs, id: 'g' })
  }
  expect(asked[0]).toMatchObject({ sentMs: 100, wishes: [{ count: 1, lifeMs: 20, notBeforeMs: 170 }] })
  const alone = new Acquirer(store, new StoreClock(), undefined)
  expect(await alone.confirm(request, answer)).toMatchObject({ fromMs: 150, notBeforeMs: 170, id: undefined })
})

it('a take whose time is over while the store is away goes on with the pauses of others', async () => {
  const world = new World()
  const clock = world.clock(0, 1)
  const acquirer = new Acquirer({ clock } as unknown as Store, new StoreClock(), undefined)
  let requests = 0
  const loop: GrantLoop<never> = {
    untilMs: 100,
    awayMs: 2_000,
    givesBackAgain: true,
    newGrant: () => ({ id: 'g' }),
    request: async () => {
      requests++
      throw new StoreError('SLUICE_STORE_UNREACHABLE', 'away')
    },
    isFresh: () => true,
    wait: async () => {},
    onLate() {},
    createTimeoutError: () => new Error('too late'),
    onFailed: async () => {},
  }
  const failing = later(acquirer.repeatUntilGranted(loop, undefined, undefined))
  await new Promise(setImmediate)
  await world.runUntil(4_000)
  await expect(failing).rejects.toThrow('away')
  expect(requests).toBeLessThan(30)
})

it('trials of keys that do not come back are forgotten', () => {
  const leases = new Leases({ clock: systemClock, holder: {}, margins: { measureWay() {} } } as never)
  const tryOnce = (n: number) => {
    const want = { buckets: [`crm:${n}`], costs: [1], limits: [] } as unknown as TakeRequest
    const answer = { granted: true, lost: false, life_us: null, fresh_us: null, on_trial: true, n: null, fromMs: 0 }
    leases.read(want, { id: String(n), requestedAt: readMoment(systemClock) }, answer as unknown as StoreAnswer)
  }
  for (let n = 0; n < 20_000; n++) tryOnce(n)
  expect(leases.trialOf(['crm:0'])).toBe(undefined)
  expect(leases.trialOf(['crm:19999'])).not.toBe(undefined)
})
