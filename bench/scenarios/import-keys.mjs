// What does an import of many keys cost, and how long does a claim take meanwhile?
import { claimer, watchClaims } from '../claims.mjs'
import { fill, message, secondsSince } from '../load.mjs'

export default {
  name: 'import-keys',
  about:
    'a bulk send of `keys` jobs, each of a key of its own with a limit under a shared one, beside claims of ten jobs, until all are taken in: rows written for each job, the longest claim',
  peers: ['sluice'],
  server: 'postgres-stats',
  full: { keys: 1_000_000 },
  quick: { keys: 20_000 },
  runs: 1,
  limitS: ({ keys }) => 600 + keys / 1_000,
  shape: () => ({ kind: 'keys' }),
  async run({ peer, place, options: { keys }, shape }) {
    const session = await peer.open(place, shape)
    const watch = await watchClaims(place)
    const own = await claimer(place)
    await fill(session, 1, () => ({ ...message, accountId: 'first' }))
    while ((await own.claim(1)).count === 0) {}
    await watch.reset()
    const before = await watch.written()
    const since = performance.now()
    let isSent = false
    const sending = fill(session, keys, (i) => ({ ...message, accountId: `k${i}` })).then(() => (isSent = true))
    let granted = 0
    while (!isSent || (await watch.unread()) > 0) granted += (await own.claim(10)).count
    await sending
    const tookS = secondsSince(since)
    const { ms, calls, longest } = await watch.read()
    // At its end a session reports what it has written.
    await own.close()
    const after = await watch.written()
    await watch.close()
    await session.close()
    const rows = Object.entries(after).map(([name, n]) => [name, (n - (before[name] ?? 0)) / keys])
    const takingIn = rows.filter(([name]) => ['arrival', 'lane', 'bucket', 'list', 'class_state'].includes(name))
    return [
      { bench: 'import-keys-jobs', value: keys / tookS, unit: 'jobs/s sent and taken in' },
      ...rows
        .filter(([, n]) => n >= 0.01)
        .map(([name, n]) => ({ bench: `import-keys-${name}`, value: n, unit: 'rows/job' })),
      { bench: 'import-keys-taking-in', value: takingIn.reduce((sum, [, n]) => sum + n, 0), unit: 'rows/job' },
      { bench: 'import-keys-claim', value: ms / calls, unit: `ms/claim, ${granted} jobs granted` },
      { bench: 'import-keys-longest', value: longest, unit: 'ms, the longest claim' },
    ]
  },
}
