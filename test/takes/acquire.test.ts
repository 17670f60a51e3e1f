import { expect, it } from 'vitest'
import { StoreClock, systemClock } from '../../src/core/clock.ts'
import type { Store } from '../../src/db/store.ts'
import type { PeerLimiter } from '../../src/limits/peer.ts'
import { Acquirer } from '../../src/takes/acquire.ts'
import { chargeAgainCall } from '../limits/engine.ts'

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
