/** What a worker does at each beat, with parts that are made up. */
import { expect, it } from 'vitest'
import { StoreError } from '../../src/core/errors.ts'
import { createRound } from '../../src/worker/round.ts'

it('ends attempts of which nothing is reported while the store is away, too', async () => {
  let looks = 0
  const round = createRound({
    hand: { size: 1, endTimedOut: () => looks++ },
    member: { round: () => Promise.reject(new StoreError('SLUICE_STORE_UNREACHABLE', 'away')) },
    stop: new AbortController().signal,
  } as never)
  await expect(round()).rejects.toThrow('away')
  expect(looks).toBe(1)
})
