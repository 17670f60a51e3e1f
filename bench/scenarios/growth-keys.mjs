// Does a claim cost more when the waiting jobs have many keys?
import { claimCost, costLines, stepper, watchClaims } from '../claims.mjs'
import { fill, message } from '../load.mjs'

export default {
  name: 'growth-keys',
  about:
    'ms and buffers of a claim with 10^4 jobs of 100 keys waiting, then with 10^waiting of `keys` keys, each with a limit under a shared one',
  peers: ['sluice'],
  server: 'postgres-stats',
  full: { keys: 100_000, waiting: 6 },
  quick: { keys: 10_000, waiting: 4.5 },
  limitS: ({ waiting }) => 600 + 10 ** waiting / 2_000,
  shape: () => ({ kind: 'keys', concurrency: 100 }),
  async run({ peer, place, options: { keys, waiting }, shape }) {
    const session = await peer.open(place, shape)
    const watch = await watchClaims(place)
    const steps = stepper(session)
    const few = (i) => ({ ...message, accountId: `k${i % 100}` })
    await fill(session, 500, few)
    await steps.run(500)
    await fill(session, 10_000, few)
    const small = await claimCost(watch, steps, 2_000)
    await fill(session, Math.round(10 ** waiting), (i) => ({ ...message, accountId: `k${i % keys}` }))
    // The first claims absorb the arrivals, some thousand each; that is a cost of sending, and is not counted here.
    const taking = []
    while ((await watch.unread()) > 0) taking.push((await claimCost(watch, steps, 200)).ms)
    const large = await claimCost(watch, steps, 2_000)
    await watch.close()
    await session.close()
    return [
      ...costLines('growth-keys-few', small),
      {
        bench: 'growth-keys-taking-in',
        value: taking.reduce((sum, ms) => sum + ms, 0) / taking.length,
        unit: 'ms/claim',
      },
      ...costLines('growth-keys-many', large),
      { bench: 'growth-keys-ratio', value: large.ms / small.ms, unit: 'x the time of a claim' },
    ]
  },
}
