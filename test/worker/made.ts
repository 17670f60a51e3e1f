/** Workers as a Sluice makes them, for tests that give one something of their own. */
import { RetentionSettings } from '../../src/fleet/retention.ts'
import { Rulebook } from '../../src/tasks/rule.ts'
import type { WorkerOptions } from '../../src/worker/options.ts'
import { Worker } from '../../src/worker/worker.ts'

/** Makes a worker of every queue, without schedules, rules, labels, Redis and a grace. */
export function makeWorker(own: Pick<WorkerOptions, 'store' | 'tasks'> & Partial<WorkerOptions>): Worker {
  return new Worker({
    schedules: [],
    queues: undefined,
    concurrency: 1,
    rate: undefined,
    graceMs: 0,
    rulebook: new Rulebook(),
    version: '0',
    labels: {},
    allowPrivate: [],
    beatUrl: undefined,
    retention: new RetentionSettings(own.store, {}),
    peer: undefined,
    renew: async () => {},
    catchUp: async () => false,
    ended() {},
    ...own,
  })
}
