/** What a worker of a fleet writes to the store every 2 s. */
import { expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import type { Db } from '../../src/db/db.ts'
import { storeOn } from '../../src/db/store.ts'
import { task } from '../../src/index.ts'
import { FleetWorker } from '../../src/outlet/fleet-worker.ts'
import { Estimates } from '../../src/tasks/estimate.ts'
import { Rulebook } from '../../src/tasks/rule.ts'
import { MemoryWire } from './memory-wire.ts'

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
      store,
      wire: new MemoryWire(systemClock, () => [0]),
      fleet: 'test',
      lender: 'test',
      tasks: [task('note', { run: () => {} })],
      labels: {},
      concurrency: 1,
      graceMs: 1_000,
      rulebook: new Rulebook([], {}, estimates),
      peer: undefined,
      allowPrivate: [],
      renew() {
        renewals++
        return renew()
      },
      ended: async () => {},
    })
    onTestFinished(() => worker.abort())
    await worker.start()
    await expect.poll(() => Math.min(written, renewals)).toBeGreaterThan(0)
  },
)
