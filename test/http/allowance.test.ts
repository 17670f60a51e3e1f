/** When an attempt's requests stop waiting for their grants. */
import { expect, it } from 'vitest'
import { Allowance, type Grants } from '../../src/http/allowance.ts'
import type { Grant } from '../../src/http/send-check.ts'

const grant = { deadlineMs: Infinity } as Grant
const longMs = 3_600_000

/** An allowance whose further grants are an hour away. */
function allowanceFor(leftMs: number) {
  const grants: Partial<Grants> = {
    own: grant,
    take: async (_, beforeWait) => {
      beforeWait(longMs)
      return grant
    },
  }
  return new Allowance(grants as Grants, new AbortController().signal, () => leftMs)
}

it('a further request fails at once if it can get no grant before the attempt is over', async () => {
  const { signal } = new AbortController()
  const code = { code: 'SLUICE_NO_ROOM_IN_TIME', retryable: true, retryAfterMs: longMs }
  for (const leftMs of [longMs - 1, longMs]) {
    const allowance = allowanceFor(leftMs)
    expect(await allowance.takeNext(signal)).toBe(grant)
    const next = allowance.takeNext(signal)
    if (leftMs < longMs) await expect(next).rejects.toMatchObject(code)
    else expect(await next).toBe(grant)
    expect(allowance.returned).toBeUndefined()
  }
})

it('an attempt that has sent nothing goes back, however long it may go on', async () => {
  const { signal } = new AbortController()
  const allowance = allowanceFor(1)
  const unused = await allowance.takeNext(signal)
  await expect(allowance.takeNext(signal, unused)).rejects.toMatchObject({ code: 'SLUICE_UNCALLED' })
  expect(allowance.returned).toBeDefined()
})
