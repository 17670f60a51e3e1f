// Benchmarks: `npm run bench -- [send|drain|end-to-end|latency|held] [--json] [--store <url>] [--jobs n] [--runs n]`.
// Starts a PostgreSQL of its own unless --store is given. Each figure is a median with its range over the runs, beside
// a raw INSERT into the same columns and indexes on the same server, because machines differ and drift.
import { parseArgs } from 'node:util'
import { openPostgres } from '../scripts/postgres.mjs'
import { drain, endToEnd, held, latency, send } from './engine.mjs'

const benches = { send, drain, 'end-to-end': endToEnd, latency, held }
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    json: { type: 'boolean', default: false },
    store: { type: 'string' },
    jobs: { type: 'string' },
    runs: { type: 'string', default: '3' },
  },
})
const wanted = positionals.length > 0 ? positionals : ['send', 'drain', 'end-to-end', 'latency']
const unknown = wanted.filter((name) => !Object.hasOwn(benches, name))
if (unknown.length > 0) {
  console.error(`no bench named ${unknown.join(', ')}; there are ${Object.keys(benches).join(', ')}`)
  process.exit(2)
}

const server = values.store === undefined ? await openPostgres() : { url: values.store, close: async () => {} }
try {
  const runs = Number(values.runs)
  for (const name of wanted) {
    const samples = new Map()
    for (let run = 0; run < runs; run++) {
      for (const { peer, value, unit, bench = name } of await benches[name]({
        url: server.url,
        jobs: values.jobs && Number(values.jobs),
      })) {
        const key = JSON.stringify({ bench, peer, unit })
        samples.set(key, [...(samples.get(key) ?? []), value])
      }
    }
    for (const [key, values_] of samples) report(JSON.parse(key), values_)
  }
} finally {
  await server.close()
}

function report(what, samples) {
  const sorted = samples.toSorted((a, b) => a - b)
  const round = (value) => Number(value.toPrecision(4))
  const line = {
    ...what,
    value: round(sorted[sorted.length >> 1]),
    min: round(sorted[0]),
    max: round(sorted.at(-1)),
    runs: sorted.length,
  }
  if (values.json) console.log(JSON.stringify(line))
  else
    console.log(
      `${what.bench.padEnd(14)} ${what.peer.padEnd(12)} ${String(line.value).padStart(9)} ${what.unit}  (${line.min} .. ${line.max}, ${line.runs} runs)`,
    )
}
