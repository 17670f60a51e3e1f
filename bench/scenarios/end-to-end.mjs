// Bulk sends, claims under limits where the peer has them, and finishes, all at once in one process.
import { cpuFrom } from '../cpu.mjs'
import { counter, fill, secondsSince } from '../load.mjs'

export default {
  name: 'end-to-end',
  about: 'jobs per second from the first bulk send to the last handler, sender and worker at once in one process',
  peers: ['sluice', 'sluice-embedded', 'postgres', 'bullmq', 'pg-boss', 'graphile-worker', 'dbos'],
  full: { jobs: 100_000 },
  quick: { jobs: 15_000 },
  shape: () => ({ kind: 'throughput' }),
  async run({ peer, place, pids, options: { jobs }, shape }) {
    const session = await peer.open(place, shape)
    const ran = counter()
    const worker = await session.work(ran.handle)
    const before = Math.ceil(jobs / 10)
    await fill(session, before)
    await ran.until(before)
    const all = [process.pid, ...pids]
    const cpu = cpuFrom(all)
    const since = performance.now()
    await fill(session, jobs)
    await ran.until(before + jobs)
    const value = jobs / secondsSince(since)
    const cpuUsed = cpu(jobs)
    await worker.stop()
    await session.close()
    return [
      { bench: 'end-to-end', value, unit: 'jobs/s' },
      { bench: 'end-to-end-cpu', value: cpuUsed, unit: 'CPU s/1000 jobs' },
    ]
  },
}
