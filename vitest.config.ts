import { defineConfig } from 'vitest/config'
import { LongestFirst } from './test/order.ts'

/**
 * The files that need a process of their own, because they replace modules that others have loaded, or define events that others
 * would meet. All others run one after the other in shared processes, and leave nothing behind that another could meet.
 */
const alone = ['test/fleet/heartbeat.test.ts', 'test/newcomer/copies.test.ts']

/** `npm run chaos`: test/long.ts. The projects read this file once more, without the mode. */
const isLong = (mode: string) => {
  if (mode === 'long') process.env['SLUICE_TEST_LONG'] = '1'
  return process.env['SLUICE_TEST_LONG'] === '1'
}

export default defineConfig(({ mode }) => ({
  test: {
    projects: [
      { extends: true, test: { name: 'alone', include: alone } },
      // To start a process and load the code anew takes a second of a core, more than the tests of most files.
      { extends: true, test: { name: 'shared', include: ['test/**/*.test.ts'], exclude: alone, isolate: false } },
    ],
    globalSetup: ['test/servers/setup.ts'],
    setupFiles: ['test/property.ts', 'test/clean-up.ts'],
    pool: 'forks',
    // The embedded engine is WebAssembly: V8 spends more on optimising it, in each worker anew, than tests gain by that.
    execArgv: ['--liftoff-only'],
    // Tests wait for limits, leases and retries: of the files that take longest, four at once used 1.7 of two cores. Many tests measure
    // rates, so more files at once than this would measure each other.
    maxWorkers: 5,
    sequence: { sequencer: LongestFirst },
    // Of a run of one file most is to transform some 300 modules: what has not changed since the last run is not transformed anew.
    experimental: { fsModuleCache: true },
    // On a shared machine a moment of starvation fails a measurement now and then; the output marks what was tried again.
    // At a developer's desk nothing is.
    retry: process.env['CI'] === undefined ? 0 : 1,
    // All these only end what is lost: on a busy machine anything may take many times as long as it should.
    expect: { poll: { timeout: 60_000, interval: 25 } },
    testTimeout: isLong(mode) ? 1_200_000 : 240_000,
    // Handlers of tests call servers on loopback; a Redis of the developer's is no test's.
    env: {
      SLUICE_ALLOW_PRIVATE: '127.0.0.1',
      REDIS_URL: '',
      SLUICE_LOG_LEVEL: 'silent',
      // Each Node that a test starts would read the system's authorities there before all else, and no test asks a server elsewhere.
      // Only in the long form does npm install something.
      ...(isLong(mode) ? { SLUICE_TEST_LONG: '1' } : { NODE_EXTRA_CA_CERTS: '' }),
    },
    hookTimeout: 240_000,
  },
}))
