import { fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { freshDatabase } from '../servers/database.ts'
import { startRedis } from '../servers/redis.ts'
import { brief } from '../v8.ts'

// Runs the benchmarks' own scenarios with Sluice at their smallest, to check that they run and count right. It measures
// nothing.

interface Line {
  bench: string
  value: number
  unit: string
}

const sampler = fileURLToPath(new URL('../../bench/sample.mjs', import.meta.url))

/** What a sample in a process of its own returns; it needs nothing that bench/ installs. */
async function sample(
  scenario: string,
  options: Record<string, unknown>,
  peer = 'sluice',
  servers: object = {},
): Promise<Map<string, number>> {
  const place = { ...(await freshDatabase()), ...servers }
  const child = fork(sampler, [], { execArgv: brief, stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
  const answer = new Promise<{ lines?: Line[]; error?: string }>((resolve, reject) => {
    child.once('message', (told) => resolve(told as { lines?: Line[]; error?: string }))
    child.once('exit', (code) => reject(new Error(`the sample ended with ${code}`)))
  })
  child.send({ scenario, peer, place, pids: [], options })
  const { lines, error } = await answer
  if (lines === undefined) throw new Error(error)
  return new Map(lines.map(({ bench, value }) => [bench, value]))
}

describe('the sample', () => {
  it.each([
    ['send', { jobs: 200, seconds: 0.1 }, ['send-bulk', 'send-single', 'send-16']],
    ['emit', { events: 200, seconds: 0.1 }, ['emit-bulk', 'emit-single', 'emit-16']],
    ['drain', { jobs: 300 }, ['drain']],
    ['end-to-end', { jobs: 300 }, ['end-to-end']],
    ['latency', { jobs: 5, gapMs: 1 }, ['latency-p50', 'latency-p99']],
  ])('of a %s run has all its figures', async (scenario, options, benches) => {
    const values = await sample(scenario, options)
    for (const bench of benches) expect(values.get(bench), bench).toBeGreaterThan(0)
  })

  it('of what reaches a vendor has what it would refuse in each way of counting', async () => {
    const options = { rate: '40/s', workers: 1, warm: 0, seconds: 0.1, delay: 0, keys: 0, label: 0, cost: 1 }
    const values = await sample('utilisation-1', options)
    for (const way of ['log', 'window', 'bucket', 'counter', 'small-bucket'])
      expect(values.has(`utilisation-1-refused-by-${way}`), way).toBe(true)
    expect(values.get('utilisation-1-most')).toBeGreaterThan(0)
  })

  it('of grants in Redis compares them with two scripts', async () => {
    const { url, close } = await startRedis()
    const values = await sample('grants', { pipelined: 2, units: 3, seconds: 0.01 }, 'sluice', { url }).finally(close)
    for (const of of ['raw', 'raw-bucket']) expect(values.get(`grants-keys-of-${of}`)).toBeGreaterThan(0)
  })

  it('of a limited drain counts the arrivals of each second over several processes', async () => {
    const values = await sample('limited-1', { jobs: 60, rate: '40/s', workers: 2 })
    expect(values.get('limited-1-excess')).toBe(0)
    expect(values.get('limited-1-most')).toBeGreaterThan(4)
    expect(values.get('limited-1-most')).toBeLessThanOrEqual(40)
  })

  it('of what claims cost finds them in the statistics of the server', async () => {
    const stats = (await import(new URL('../../bench/servers/postgres-stats.mjs', import.meta.url).href)) as {
      start(): Promise<{ place(): Promise<object>; close(): Promise<void> }>
    }
    const server = await stats.start()
    const values = async (scenario: string, options: object) =>
      sample(scenario, { ...options }, 'sluice', await server.place())
    try {
      expect(
        (await values('growth-waiting', { from: 1, to: 1, keys: 5 })).get('growth-waiting-1e1-ms'),
      ).toBeGreaterThan(0)
      expect((await values('idle-classes', { classes: 20, busy: 5 })).get('idle-classes-claim')).toBeGreaterThan(0)
      expect((await values('import-keys', { keys: 200 })).get('import-keys-lane')).toBeGreaterThan(1)
    } finally {
      await server.close()
    }
  })

  it('of a drain whose limit is shared in Redis counts the requests to Redis', async () => {
    const { url, close } = await startRedis()
    const options = { jobs: 60, rate: '40/s', workers: 2 }
    const values = await sample('shared-1', options, 'sluice-redis', { redis: { url } }).finally(close)
    expect(values.get('shared-1-excess')).toBe(0)
    expect(values.get('shared-1-refused')).toBe(0)
    expect(values.get('shared-1-calls')).toBeGreaterThan(0)
    expect(values.has('shared-1-refunds')).toBe(true)
  })
})
