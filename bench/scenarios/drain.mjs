// A backlog that is drained by one worker in the process that filled it.
import { cpuFrom } from '../cpu.mjs'
import { counter, everyPeer, fill, secondsSince } from '../load.mjs'

export default {
  name: 'drain',
  about: 'jobs per second through one worker, from its start to the last handler, with a backlog filled before',
  peers: everyPeer,
  full: { jobs: 50_000 },
  quick: { jobs: 10_000 },
  shape: () => ({ kind: 'throughput' }),
  async run({ peer, place, pids, options: { jobs }, shape }) {
    const session = await peer.open(place, shape)
    const ran = counter()
    // The first tenth is not counted, because Node compiles code that runs often.
    const before = Math.ceil(jobs / 10)
    await fill(session, before)
    const first = await session.work(ran.handle)
    await ran.until(before)
    await first.stop()
    await fill(session, jobs)
    const all = [process.pid, ...pids]
    const cpu = cpuFrom(all)
    const since = performance.now()
    const worker = await session.work(ran.handle)
    await ran.until(before + jobs)
    const value = jobs / secondsSince(since)
    const cpuUsed = cpu(jobs)
    await worker.stop()
    await session.close()
    return [
      { bench: 'drain', value, unit: 'jobs/s' },
      { bench: 'drain-cpu', value: cpuUsed, unit: 'CPU s/1000 jobs' },
    ]
  },
}
