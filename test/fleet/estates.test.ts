/** Which jobs of silent dispatchers a dispatcher finds, while the store comes and goes. */
import { expect, it } from 'vitest'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import { StoreError } from '../../src/core/errors.ts'
import type { Store } from '../../src/db/store.ts'
import { Estates } from '../../src/fleet/estates.ts'

it('an estate whose jobs could not be read is found again, and once', async () => {
  const left = [
    { worker: '7', claim: 'a', begun: ['2'], name: 'gone' },
    { worker: '7', claim: 'b', begun: [], name: 'gone' },
  ]
  const store = {
    run: async (_file: string, [, , known]: [string, string, string[]]) =>
      left.filter((one) => !known.includes(one.worker)),
  }
  let isAway = true
  const adopt = async (claim: string) => {
    if (isAway && claim === 'b') throw new StoreError('SLUICE_STORE_UNREACHABLE', 'away')
    return (claim === 'a' ? [{ seq: 1 }, { seq: 2 }] : [{ seq: 3 }]) as ClaimedJob[]
  }
  const estates = new Estates(store as unknown as Store, { adopt })
  await expect(estates.find('1', 'kin')).rejects.toThrow('away')
  isAway = false
  const [estate, ...others] = await estates.find('1', 'kin')
  expect(others).toEqual([])
  expect(estate?.jobs.map(({ seq }) => seq)).toEqual([1, 2, 3])
  expect([...(estate?.begun ?? [])].map(({ seq }) => seq)).toEqual([2])
  expect(await estates.find('1', 'kin')).toEqual([])
})
