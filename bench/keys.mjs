// Shared by the scenarios with many keys.
import { counter, fill, message, secondsSince } from './load.mjs'

/** Makes a backlog of many keys, each with its own limit under a shared one; one key came first and has half of the jobs. */
export function drainOfKeys({ name, keys, jobs, quickJobs }) {
  return {
    name,
    about: `jobs per second through one worker with ${keys} keys, each with a limit under a shared one (none binds), one of which came first with half of the backlog; when all others were done`,
    peers: ['sluice'],
    full: { keys, jobs },
    quick: { keys, jobs: quickJobs },
    shape: () => ({ kind: 'keys' }),
    async run({ peer, place, options, shape }) {
      const session = await peer.open(place, shape)
      const half = Math.floor(options.jobs / 2)
      await fill(session, half, () => ({ ...message, accountId: 'hot' }))
      await fill(session, half, (i) => ({ ...message, accountId: `k${i % (options.keys - 1)}` }))
      const ran = counter()
      let othersRan = 0
      let ranThen = 0
      const since = performance.now()
      const worker = await session.work(({ accountId }) => {
        if (accountId !== 'hot' && ++othersRan === half) ranThen = ran.count + 1
        ran.handle()
      })
      await ran.until(half * 2)
      const tookS = secondsSince(since)
      await worker.stop()
      await session.close()
      return [
        { bench: `${name}-drain`, value: (half * 2) / tookS, unit: 'jobs/s' },
        { bench: `${name}-others-done`, value: (ranThen / (half * 2)) * 100, unit: '% of all jobs had run' },
      ]
    },
  }
}
