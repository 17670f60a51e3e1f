// Memory of a worker process with a long backlog.
import { setTimeout as sleep } from 'node:timers/promises'
import { residentMb } from '../cpu.mjs'
import { startFleet } from '../fleet.mjs'
import { fill } from '../load.mjs'

export default {
  name: 'memory-waiting',
  about:
    'resident memory of a worker process (which sends nothing) with a million jobs waiting behind a rate, and its growth',
  peers: ['sluice', 'bullmq'],
  full: { jobs: 1_000_000, rate: '1000/s', seconds: 120 },
  quick: { jobs: 20_000, rate: '1000/s', seconds: 10 },
  limitS: ({ jobs, seconds }) => seconds + 120 + jobs / 1_000,
  shape: ({ rate }) => ({ kind: 'limited', rate }),
  async run({ peer, place, options: { jobs, seconds }, shape }) {
    const session = await peer.open(place, shape)
    await fill(session, jobs)
    const fleet = await startFleet({ peer, place, shape, count: 1 })
    await fleet.go()
    await fleet.until(1, 60)
    const seen = []
    for (let second = 0; second < seconds; second++) {
      await sleep(1000)
      seen.push(residentMb(fleet.pids[0]))
    }
    await fleet.stop()
    await session.close()
    const third = Math.max(Math.floor(seen.length / 3), 1)
    const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length
    return [
      { bench: 'memory-waiting', value: Math.max(...seen), unit: 'MB at most' },
      // Compares the means of thirds, because the heap grows and shrinks.
      {
        bench: 'memory-growth',
        value: mean(seen.slice(-third)) - mean(seen.slice(third, third * 2)),
        unit: 'MB, last third over the one before',
      },
    ]
  },
}
