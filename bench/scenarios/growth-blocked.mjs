// Does a claim cost more when more keys wait for their limit?
import { claimCost, costLines, stepper, watchClaims } from '../claims.mjs'
import { fill, message } from '../load.mjs'

const measured = 2_000

export default {
  name: 'growth-blocked',
  about: 'ms and buffers of a claim of free keys beside 10^from to 10^to keys that wait for their limit',
  peers: ['sluice'],
  server: 'postgres-stats',
  full: { from: 1, to: 5 },
  quick: { from: 1, to: 3 },
  shape: () => ({ kind: 'blocked', concurrency: 100 }),
  async run({ peer, place, options: { from, to }, shape }) {
    const session = await peer.open(place, shape)
    const watch = await watchClaims(place)
    const steps = stepper(session)
    let free = 0
    const fresh = () => ({ ...message, accountId: `free${free++}` })
    await fill(session, 500, fresh)
    await steps.run(500)
    const lines = []
    let blocked = 0
    for (let exponent = from; exponent <= to; exponent++) {
      const more = 10 ** exponent - blocked
      const first = blocked
      // One job of each key uses up its limit for the day; the other job waits.
      await fill(session, more * 2, (i) => ({ ...message, accountId: `blocked${first + (i % more)}` }))
      await steps.run(more)
      blocked += more
      await fill(session, measured, fresh)
      lines.push(...costLines(`growth-blocked-1e${exponent}`, await claimCost(watch, steps, measured)))
    }
    await watch.close()
    await session.close()
    return lines
  },
}
