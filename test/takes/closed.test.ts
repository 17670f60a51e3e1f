/** Takes of a Sluice that is closed. */
import { expect, it } from 'vitest'
import type { Definitions } from '../../src/claim/definitions/define.ts'
import { systemClock } from '../../src/core/clock.ts'
import { StoreError } from '../../src/core/errors.ts'
import { silent } from '../../src/core/log.ts'
import type { Store } from '../../src/db/store.ts'
import { limit } from '../../src/limits/limit.ts'
import { Takes } from '../../src/takes/takes.ts'

it('takes of a closed Sluice are granted no more, even of a limit that is open because the store has just gone away', async () => {
  const call = () => Promise.reject(new StoreError('SLUICE_STORE_UNREACHABLE', 'away'))
  const store = { clock: systemClock, log: silent, db: { checkOutside() {} }, call } as unknown as Store
  const definitions = { define: async () => {} } as unknown as Definitions
  const takes = new Takes({ store, definitions, allowPrivate: [], peer: undefined })
  const open = limit('open', { rate: '1000/s', onStoreError: 'open' })
  expect(await takes.tryTake(open)).toMatchObject({ granted: true, lease: { isUncharged: true } })
  await takes.close()
  await expect(takes.tryTake(open)).rejects.toMatchObject({ code: 'SLUICE_CLOSED' })
})
