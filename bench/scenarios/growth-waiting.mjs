// Does a claim cost more when more jobs wait?
import { claimCost, costLines, stepper, watchClaims } from '../claims.mjs'
import { fill, message } from '../load.mjs'

export default {
  name: 'growth-waiting',
  about:
    'ms and buffers of a claim with 10^from to 10^to waiting jobs, of `keys` keys under a limit of their own and a shared one',
  peers: ['sluice'],
  server: 'postgres-stats',
  full: { from: 3, to: 6, keys: 100 },
  quick: { from: 3, to: 4, keys: 100 },
  limitS: ({ to }) => 600 + 10 ** to / 2_000,
  shape: () => ({ kind: 'keys', concurrency: 100 }),
  async run({ peer, place, options: { from, to, keys }, shape }) {
    const session = await peer.open(place, shape)
    const watch = await watchClaims(place)
    const steps = stepper(session)
    const keyed = (i) => ({ ...message, accountId: `k${i % keys}` })
    await fill(session, 500, keyed)
    await steps.run(500)
    const lines = []
    let waiting = 0
    for (let exponent = from; exponent <= to; exponent++) {
      await fill(session, 10 ** exponent - waiting, keyed)
      const ranBefore = steps.ran.count
      lines.push(
        ...costLines(
          `growth-waiting-1e${exponent}`,
          await claimCost(watch, steps, Math.min(10 ** exponent / 2, 2_000)),
        ),
      )
      waiting = 10 ** exponent - (steps.ran.count - ranBefore)
    }
    await watch.close()
    await session.close()
    return lines
  },
}
