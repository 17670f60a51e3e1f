/** What a worker of a fleet writes to the store every 2 s. */
import { expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import type { Db } from '../../src/db/db.ts'
import { type Store, storeOn } from '../../src/db/store.ts'
import { task } from '../../src/index.ts'
import { marginsOf } from '../../src/claim/definitions/margins.ts'
import { BorrowedStore } from '../../src/outlet/borrowed-store.ts'
import { FleetWorker } from '../../src/outlet/fleet-worker.ts'
import { Report } from '../../src/report/report.ts'
import { silent } from '../../src/core/log.ts'
import { Estimates } from '../../src/tasks/estimate.ts'
import { Rulebook } from '../../src/tasks/rule.ts'
import { MemoryWire } from './memory-wire.ts'

/** Options of a worker of one task on this store. */
const optionsOf = (store: Store) => ({
  store,
  wire: new MemoryWire(systemClock, () => [0]),
  fleet: 'test',
  tasks: [task('note', { run: () => {} })],
  labels: {},
  concurrency: 1,
  graceMs: 1_000,
  rulebook: new Rulebook([], {}, new Estimates(store)),
  peer: undefined,
  allowPrivate: [],
  renew: async () => {},
  ended: async () => {},
})

it.for([
  ['does not end', () => new Promise<void>(() => {})],
  ['fails', () => Promise.reject(new Error('locked'))],
] as const)(
  'a worker of a fleet does not wait for a renewal of definitions that %s',
  async ([, renew], { onTestFinished }) => {
    const sleep = () => new Promise<void>((resolve) => setImmediate(resolve))
    const store = storeOn({} as Db, { clock: { ...systemClock, sleep } })
    store.call = store.run = store.query = async () => []
    const estimates = new Estimates(store)
    let written = 0
    estimates.write = async () => void written++
    let renewals = 0
    const worker = new FleetWorker({
      ...optionsOf(store),
      lender: 'test',
      rulebook: new Rulebook([], {}, estimates),
      renew() {
        renewals++
        return renew()
      },
    })
    onTestFinished(() => worker.abort())
    await worker.start()
    await expect.poll(() => Math.min(written, renewals)).toBeGreaterThan(0)
  },
)

it('a worker without a store whose renewal of margins fails takes no jobs until they allow for it', async ({
  onTestFinished,
}) => {
  const sleep = () => new Promise<void>((resolve) => setImmediate(resolve))
  const clock = { ...systemClock, sleep }
  const lender = new BorrowedStore({ schema: 'sluice', clock, report: new Report(clock, silent) })
  const margins = marginsOf(lender.store)
  let isAway = false
  const answer = async () => {
    if (isAway) throw new Error('away')
  }
  margins.join = answer
  margins.renew = answer
  const worker = new FleetWorker({ ...optionsOf(lender.store), lender })
  onTestFinished(() => worker.abort())
  await worker.start()
  await expect.poll(() => lender.isReady).toBe(true)
  isAway = true
  await expect.poll(() => lender.isReady).toBe(false)
  isAway = false
  await expect.poll(() => lender.isReady).toBe(true)
})
