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
  'test/claim/snapshot.test.ts',
  'test/outlet/closed.test.ts',
  'test/fleet/fleet.test.ts',
  'test/redis/peer.test.ts',
  'test/remote/stock.test.ts',
  'test/worker/circuit.test.ts',
  'test/outlet/away.test.ts',
  'test/outlet/crash.test.ts',
  'test/newcomer/logs.test.ts',
  'test/remote/fleets.test.ts',
  'test/claim/history.test.ts',
  'test/absorb/absorb.test.ts',
  'test/claim/ahead.test.ts',
  'test/claim/reply.test.ts',
  'test/cli/bulk.test.ts',
  'test/outlet/proof.test.ts',
  'test/worker/throttled.test.ts',
  'test/redis/clock.test.ts',
  'test/db/silence.test.ts',
  'test/bench/sample.test.ts',
  'test/claim/contention.test.ts',
  'test/cli/newcomer.test.ts',
  'test/redis/topology.test.ts',
  'test/outlet/faults.test.ts',
  'test/direct/direct.test.ts',
  'test/absorb/watching.test.ts',
  'test/redis/stores.test.ts',
  'test/takes/away.test.ts',
  'test/amqp/broker.test.ts',
  'test/cli/embedded.test.ts',
  'test/cli/server.test.ts',
  'test/claim/locked.test.ts',
  'test/fleet/all.test.ts',
  'test/fleet/rescue.test.ts',
  'test/absorb/redis.test.ts',
  'test/claim/restored.test.ts',
  'test/fleet/change.test.ts',
  'test/worker/margins.test.ts',
  'test/claim/seats.test.ts',
  'test/absorb/races.test.ts',
  'test/absorb/reports.test.ts',
  'test/redis/versions.test.ts',
  'test/cli/usage.test.ts',
  'test/fleet/retention.test.ts',
  'test/newcomer/commands.test.ts',
  'test/claim/locks.test.ts',
  'test/worker/vendors.test.ts',
  'test/bus/away.test.ts',
  'test/bus/relay.test.ts',
  'test/db/pooler.test.ts',
  'test/schedule/fleet.test.ts',
  'test/newcomer/roads.test.ts',
  'test/db/pglite.test.ts',
  'test/bus/rabbit.test.ts',
  'test/worker/stop.test.ts',
  'test/celery/results.test.ts',
  'test/bus/own.test.ts',
  'test/fleet/releases.test.ts',
  'test/events/defects.test.ts',
  'test/newcomer/testing.test.ts',
  'test/redis/lease.test.ts',
  'test/newcomer/failed-jobs.test.ts',
  'test/testing/rules.test.ts',
  'test/examples/celery.test.ts',
  'test/bus/conformance.test.ts',
  'test/cli/events.test.ts',
  'test/limits/refund.test.ts',
  'test/celery/redis-broker.test.ts',
  'test/claim/epoch.test.ts',
  'test/tidy.test.ts',
  'test/takes/fleet.test.ts',
  'test/operations/key-numbers.test.ts',
  'test/claim/ahead-keys.test.ts',
  'test/claim/several.test.ts',
  'test/claim/many.test.ts',
  'test/redis/loss.test.ts',
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
