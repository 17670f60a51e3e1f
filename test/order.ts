/** The order in which `npm test` runs its files. */
import { relative } from 'node:path'
import { BaseSequencer, type TestSpecification } from 'vitest/node'

/**
 * The files that take longest, the longest first: one that began last would run on alone at the end. On a machine that
 * ran the tests before, Vitest knows the durations itself.
 */
export const longest = [
  'test/outlet/fleet.test.ts',
  'test/redis/fleet.test.ts',
  'test/events/fleet.test.ts',
  'test/claim/outlet.conformance.test.ts',
  'test/direct/faults.test.ts',
  'test/fleet/fleet.test.ts',
  'test/worker/circuit.test.ts',
  'test/remote/fleets.test.ts',
  'test/claim/ahead.test.ts',
  'test/absorb/absorb.test.ts',
  'test/worker/throttled.test.ts',
  'test/claim/reply.test.ts',
  'test/outlet/proof.test.ts',
  'test/db/silence.test.ts',
  'test/cli/embedded.test.ts',
  'test/direct/direct.test.ts',
  'test/claim/history.test.ts',
  'test/fleet/all.test.ts',
  'test/redis/clock.test.ts',
  'test/claim/ahead-keys.test.ts',
  'test/newcomer/logs.test.ts',
  'test/cli/newcomer.test.ts',
  'test/outlet/faults.test.ts',
  'test/redis/peer.test.ts',
  'test/absorb/watching.test.ts',
  'test/redis/stores.test.ts',
  'test/bench/sample.test.ts',
  'test/fleet/rescue.test.ts',
  'test/remote/stock.test.ts',
  'test/amqp/broker.test.ts',
  'test/redis/lease.test.ts',
  'test/claim/locked.test.ts',
  'test/amqp/crash.test.ts',
  'test/claim/restored.test.ts',
  'test/worker/margins.test.ts',
  'test/fleet/change.test.ts',
  'test/bus/own.test.ts',
  'test/bus/faults.test.ts',
  'test/cli/bulk.test.ts',
  'test/claim/contention.test.ts',
  'test/claim/snapshot.test.ts',
  'test/bus/archive.test.ts',
  'test/cli/server.test.ts',
  'test/redis/topology.test.ts',
  'test/takes/away.test.ts',
  'test/bus/away.test.ts',
  'test/worker/control.test.ts',
  'test/testing/ends.test.ts',
  'test/fleet/retention.test.ts',
  'test/claim/ahead-history.test.ts',
  'test/limits/store.test.ts',
  'test/schedule/fleet.test.ts',
  'test/redis/store.test.ts',
  'test/db/pglite.test.ts',
  'test/absorb/races.test.ts',
  'test/redis/versions.test.ts',
  'test/db/pooler.test.ts',
  'test/examples/celery.test.ts',
  'test/fleet/releases.test.ts',
]

/**
 * Runs the longest files first, then those that have a process each, then those that share processes, since a process goes on
 * only while the next file shares it, too.
 */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const place = ({ moduleId, project }: TestSpecification) => {
      const at = longest.indexOf(relative(this.ctx.config.root, moduleId))
      return at < 0 ? longest.length + (project.config.isolate ? 0 : 1) : at
    }
    return (await super.sort(files)).toSorted((a, b) => place(a) - place(b))
  }
}
