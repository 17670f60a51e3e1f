/** The order in which `npm test` runs its files. */
import { relative } from 'node:path'
import { BaseSequencer, type TestSpecification } from 'vitest/node'

/**
 * The files that take longest, the longest first: one that began last would run on alone at the end. On a machine that
 * ran the tests before, Vitest knows the durations itself.
 */
export const longest = [
  'test/cli/embedded.test.ts',
  'test/redis/fleet.test.ts',
  'test/remote/fleets.test.ts',
  'test/claim/history.test.ts',
  'test/events/fleet.test.ts',
  'test/newcomer/logs.test.ts',
  'test/cli/usage.test.ts',
  'test/absorb/absorb.test.ts',
  'test/claim/outlet.conformance.test.ts',
  'test/fleet/fleet.test.ts',
  'test/cli/server.test.ts',
  'test/cli/limits.test.ts',
  'test/worker/circuit.test.ts',
  'test/db/pglite.test.ts',
  'test/redis/stores.test.ts',
  'test/redis/peer.test.ts',
  'test/claim/several.test.ts',
  'test/claim/locks.test.ts',
  'test/cli/bulk.test.ts',
  'test/newcomer/testing.test.ts',
  'test/newcomer/commands.test.ts',
  'test/claim/lane.test.ts',
  'test/worker/control.test.ts',
  'test/absorb/watching.test.ts',
  'test/direct/faults.test.ts',
  'test/redis/topology.test.ts',
  'test/amqp/crash.test.ts',
  'test/outlet/fleet.test.ts',
  'test/claim/seats.test.ts',
  'test/redis/ahead.test.ts',
  'test/cli/storage.test.ts',
  'test/redis/store.test.ts',
  'test/remote/stock.test.ts',
  'test/takes/others.test.ts',
  'test/newcomer/failed-jobs.test.ts',
  'test/cli/newcomer.test.ts',
  'test/bench/sample.test.ts',
  'test/absorb/redis.test.ts',
  'test/cli/events.test.ts',
  'test/fleet/all.test.ts',
  'test/fleet/releases.test.ts',
  'test/claim/epoch.test.ts',
  'test/claim/sleep.test.ts',
  'test/claim/restored.test.ts',
  'test/store/tx.test.ts',
  'test/worker/throttled.test.ts',
  'test/limits/decide.test.ts',
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
