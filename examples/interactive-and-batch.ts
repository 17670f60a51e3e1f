/**
 * One API account, 100 calls a second, and two kinds of work on it: a nightly import of 250 rows, and people who open a
 * card and wait for it. The import may use all that the account allows, but a call that a person waits for goes before
 * all rows but those that were granted already: a fifth of a second's worth at most.
 * A stand-in for the API, started here, counts what arrives. At the end the program prints how long each kind waited.
 *
 *     npm run setup && npx jiti examples/interactive-and-batch.ts
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { check, type Context, type Failure, limit, rule, Sluice, task, useSluice } from 'sluice'
import { vendor } from 'sluice/testing'
import { z } from 'zod'

const api = vendor({ rules: [{ algorithm: 'sliding log', limit: 100, windowMs: 1_000 }] })
const url = await api.listen()

// Both tasks use the same bucket, that of their account. It is also their fair key, and within a fair key the job with the
// higher priority goes first, whatever queue it is in.
const account = limit('api', { rate: '100/s', by: 'account' })

// No job is expected to fail here; if one did, the loops below would never end.
const onFailed = ({ task, error }: Failure) => {
  console.error(`${task} failed: ${error?.message}`)
  process.exit(1)
}

const importRow = task('import-row', {
  input: z.object({ account: z.string(), row: z.number(), isOnScreen: z.boolean() }),
  limits: [account],
  onFailed,
  run: ({ row }, context) => call(`/rows/${row}`, context),
})

const openCard = task('open-card', {
  input: z.object({ account: z.string(), card: z.number() }),
  limits: [account],
  onFailed,
  run: ({ card }, context) => call(`/cards/${card}`, context),
})

const sluice = await Sluice.open({
  store: 'memory:',
  allowPrivate: ['127.0.0.1'], // for the stand-in; public addresses are always allowed
  // Here one worker serves all queues, and priority decides. If calls of the import take long, give the other queue slots
  // that the import cannot use: a second worker with `{ queues: ['interactive'] }`, or `sluice work --queues interactive`.
  routes: { 'import-*': { queue: 'batch', priority: -10 }, 'open-*': 'interactive' },
  // A row that is on a person's screen is not batch work, although the import sends it.
  rules: [
    rule<{ isOnScreen: boolean }>('on-screen', {
      tasks: 'import-*',
      when: ({ input }) => input.isOnScreen,
      do: { queue: 'interactive', priority: 5 },
    }),
  ],
})
useSluice(sluice)

const waits: Record<string, number[]> = { batch: [], interactive: [] }

await importRow.sendMany(
  Array.from({ length: 250 }, (_, row) => ({ account: 'acme', row, isOnScreen: row === 249 })), // the last row is on a screen
)
await sluice.work([importRow, openCard])

// Ten people open a card during the import: after 10, 20, 30 … of its rows.
const overtaken: string[] = []
const rowsSoFar = () => api.arrivals().filter(({ path }) => path.startsWith('/rows/')).length
for (let card = 0; card < 10; card++) {
  while (rowsSoFar() < 10 + card * 10) await sleep(5)
  const id = await openCard.send({ account: 'acme', card })
  const before = rowsSoFar()
  await sluice.waitFor(id)
  const at = api.arrivals().findIndex(({ path }) => path === `/cards/${card}`)
  const between =
    api
      .arrivals()
      .slice(0, at)
      .filter(({ path }) => path.startsWith('/rows/')).length - before
  overtaken.push(`card ${card}: ${250 - before} rows were waiting, ${Math.max(0, between)} of them went before it`)
}
while (Object.values(waits).flat().length < 260) await sleep(20)

for (const line of overtaken) console.log(line)
const last = api.arrivals().findIndex(({ path }) => path === '/rows/249')
console.log(`row 249, sent last and on screen: ${last} calls went before it`)
for (const [queue, all] of Object.entries(waits))
  console.log(`${queue}: ${all.length} calls, answered after ${median(all)} ms (median)`)
const [proof] = api.report().rules
console.log(`at most ${proof?.worst} calls in any second, of 100 allowed`)

await sluice.close()
await api.close()

async function call(path: string, { fetch, job }: Context): Promise<void> {
  const response = await fetch(url + path)
  waits[job.queue]?.push(Date.now() - job.createdAt.getTime())
  await check(response)
}

function median(all: number[]): number | undefined {
  return all.toSorted((a, b) => a - b)[Math.floor(all.length / 2)]
}
