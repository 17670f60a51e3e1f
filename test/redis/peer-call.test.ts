/** What the store does about a bucket that Redis denies. */
import { expect, it } from 'vitest'
import type { Granted } from '../../src/redis/call.ts'
import { decisionsOf } from '../../src/redis/peer-call.ts'

const second = 1_000_000
const [never, hour] = [2 ** 53 - 1, 3_600 * second]

it.each([
  { what: 'time alone makes room soon', cause: 'used', waitUs: 4 * second, quietUs: hour, us: 4 * second },
  {
    what: 'places are lacking, and one was given back a moment ago',
    cause: 'used',
    waitUs: never,
    quietUs: 0,
    us: second / 4,
  },
  { what: 'nothing has changed for two seconds', cause: 'used', waitUs: hour, quietUs: 2 * second, us: 2 * second },
  { what: 'nothing has changed for an hour', cause: 'used', waitUs: hour, quietUs: hour, us: 5 * second },
  { what: 'the bucket is closed', cause: 'held', waitUs: hour, quietUs: 0, us: 60 * second },
  { what: 'other programs take from it', cause: 'others', waitUs: hour, quietUs: 0, us: 0 },
] as const)('a bucket that Redis denies is held for a while when $what', ({ cause, waitUs, quietUs, us }) => {
  const asked = { wishes: [{ buckets: ['crm'], units: [1], count: 1, lifeMs: 100 }], epoch: 'e', sentMs: 0 }
  const result: Granted = { granted: 0, waitUs, lacking: 0, startUs: 0, cause, quietUs }
  const times = { requestedMs: 0, receivedMs: 1, late: [0] }
  const call = { buckets: ['crm'], items: [], itemOf: [0] }
  const { holds } = decisionsOf(asked, call, [result], times, { isQuick: () => false, isAlone: true })
  expect(holds.get('crm')?.us).toBe(us)
})
