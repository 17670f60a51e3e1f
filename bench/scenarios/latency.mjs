// From the call of send to the first line of the handler, one job at a time, each when the worker is idle again.
import { setTimeout as sleep } from 'node:timers/promises'
import { everyPeer, message, monotonicMs, quantile } from '../load.mjs'

export default {
  name: 'latency',
  about:
    'ms from the call of send to the first line of the handler, one job each 20 ms, sender and worker in one process',
  peers: [...everyPeer.filter((name) => name !== 'postgres'), 'sluice-redis-own'],
  full: { jobs: 300, gapMs: 20 },
  quick: { jobs: 100, gapMs: 20 },
  shape: () => ({ kind: 'latency' }),
  async run({ peer, place, options: { jobs, gapMs }, shape }) {
    const session = await peer.open(place, shape)
    const took = []
    let started = () => {}
    const worker = await session.work(({ since }) => {
      took.push(monotonicMs() - since)
      started()
    })
    const warmUp = 30
    for (let i = 0; i < jobs + warmUp; i++) {
      const start = new Promise((resolve) => (started = resolve))
      await session.sendOne({ ...message, since: monotonicMs() })
      await start
      await sleep(gapMs)
    }
    await worker.stop()
    await session.close()
    return latencies(took.slice(warmUp))
  },
}

/** Makes the lines of this scenario. */
export function latencies(took) {
  return [
    { bench: 'latency-p50', value: quantile(took, 0.5), unit: 'ms' },
    { bench: 'latency-p99', value: quantile(took, 0.99), unit: 'ms' },
  ]
}
