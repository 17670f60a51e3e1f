// What do tasks and queues cost that have no jobs?
import { claimer, watchClaims } from '../claims.mjs'
import { message } from '../load.mjs'

const portion = 50

export default {
  name: 'idle-classes',
  about:
    'a claim that finds nothing after `classes` queues were used once; then one job in each of `busy` of them: the longest claim until all are granted',
  peers: ['sluice'],
  server: 'postgres-stats',
  full: { classes: 20_000, busy: 2_000 },
  quick: { classes: 1_000, busy: 200 },
  runs: 1,
  limitS: ({ classes }) => 300 + classes / 10,
  shape: () => ({ kind: 'shared' }),
  async run({ peer, place, options: { classes, busy }, shape }) {
    const session = await peer.open(place, shape)
    const watch = await watchClaims(place)
    const own = await claimer(place)
    const use = async (count) => {
      for (let from = 0; from < count; from += portion)
        await Promise.all(
          Array.from({ length: Math.min(portion, count - from) }, (_, i) => session.sendTo(`q${from + i}`, message)),
        )
    }
    const claimAll = async (count) => {
      for (let granted = 0; granted < count;) granted += (await own.claim(100)).count
      await own.finish()
    }
    const measured = async (run) => {
      await watch.reset()
      await run()
      return watch.read()
    }
    await use(classes)
    const first = await measured(() => claimAll(classes))
    const idle = async () => {
      for (let i = 0; i < 20; i++) await own.claim(1)
    }
    await idle()
    const still = await measured(idle)
    await use(busy)
    const again = await measured(() => claimAll(busy))
    await own.close()
    await watch.close()
    await session.close()
    return [
      { bench: 'idle-classes-first-longest', value: first.longest, unit: 'ms, the longest claim of all' },
      { bench: 'idle-classes-claim', value: still.ms / still.calls, unit: 'ms/claim that finds nothing' },
      { bench: 'idle-classes-busy', value: again.ms / again.calls, unit: 'ms/claim' },
      { bench: 'idle-classes-busy-longest', value: again.longest, unit: 'ms, the longest claim' },
    ]
  },
}
