// Like end-to-end, with the sender and the worker in separate processes.
import { cpuFrom } from '../cpu.mjs'
import { startFleet } from '../fleet.mjs'
import { fill, monotonicMs } from '../load.mjs'

export default {
  name: 'end-to-end-split',
  about:
    'jobs per second from the first bulk send to the last handler, sender and worker each in a process of their own',
  peers: ['sluice', 'bullmq', 'pg-boss', 'graphile-worker'],
  full: { jobs: 100_000 },
  quick: { jobs: 15_000 },
  shape: () => ({ kind: 'throughput' }),
  async run({ peer, place, pids, options: { jobs }, shape }) {
    const session = await peer.open(place, shape)
    const fleet = await startFleet({ peer, place, shape, count: 1 })
    await fleet.go()
    const before = Math.ceil(jobs / 10)
    await fill(session, before)
    if (!(await fleet.until(before, 300))) throw new Error(`only ${fleet.ran()} of ${before} jobs ran`)
    const all = [process.pid, ...pids]
    const cpu = cpuFrom(all)
    const sinceMs = monotonicMs()
    await fill(session, jobs)
    if (!(await fleet.until(before + jobs, 300))) throw new Error(`only ${fleet.ran()} of ${before + jobs} jobs ran`)
    const cpuUsed = cpu(jobs)
    const [{ times }] = await fleet.stop()
    await session.close()
    const lastMs = times.reduce((last, time) => Math.max(last, time), 0)
    return [
      { bench: 'end-to-end-split', value: (jobs / (lastMs - sinceMs)) * 1000, unit: 'jobs/s' },
      { bench: 'end-to-end-split-cpu', value: cpuUsed, unit: 'CPU s/1000 jobs' },
    ]
  },
}
