/** Requests that are repeated after a lost connection. */
import { expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { closedError } from '../../src/core/errors.ts'
import { repeatUntilAnswered } from '../../src/db/repeat-request.ts'

it('a store that is closed is asked once', async () => {
  let tries = 0
  const send = () => Promise.reject((tries++, closedError()))
  await expect(repeatUntilAnswered(systemClock, send)).rejects.toMatchObject({ code: 'SLUICE_CLOSED' })
  expect(tries).toBe(1)
})
