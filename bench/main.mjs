// Benchmarks of Sluice beside its peers: `npm run bench -- --help`; docs/performance.md describes how figures are measured.
// This file imports no peer, because they are installed first.
import { readdirSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { install } from './install.mjs'

const usage = `npm run bench -- [scenario …] [--peer a,b] [--runs n] [--quick] [--json] [--set name=value,…]

  scenario   one or more of those that --list names; default: send drain end-to-end latency
  --peer     only these peers; default: all of the scenario; --quick leaves out the slow ones
  --runs     samples of each figure; default 5 (of scenarios of minutes 1 or 3), with --quick up to 3 within 170 s
  --quick    small backlogs; under 3 minutes for the default scenarios
  --json     one JSON object a line instead of a table
  --set      options of the scenarios, as --list shows them
  --redis    memory (default) or aof (appendfsync everysec)
  --profile  a directory for CPU profiles (V8) of the samples' processes
  --list     scenarios, what they measure, their options and peers`

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    peer: { type: 'string' },
    runs: { type: 'string' },
    quick: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
    set: { type: 'string', multiple: true, default: [] },
    redis: { type: 'string', default: 'memory' },
    profile: { type: 'string' },
    list: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
})

function refuse(message) {
  console.error(`${message}\n\n${usage}`)
  process.exit(2)
}

/** Lists scenarios or peers: each is one file. */
const namesIn = (folder) =>
  readdirSync(new URL(folder, import.meta.url))
    .filter((file) => file.endsWith('.mjs'))
    .map((file) => file.slice(0, -'.mjs'.length))

async function load(folder, names) {
  return Promise.all(names.map(async (name) => (await import(`./${folder}/${name}.mjs`)).default))
}

/** Parses `jobs=1000,rate=20` to { jobs: 1000, rate: 20 }. */
function settings(texts) {
  return Object.fromEntries(
    texts
      .flatMap((text) => text.split(','))
      .map((text) => {
        const [name, value = ''] = text.split('=')
        return [name, value === '' || Number.isNaN(Number(value)) ? value : Number(value)]
      }),
  )
}

const scenarios = await load('scenarios', namesIn('scenarios'))
const peers = await load('peers', namesIn('peers'))

if (values.help) {
  console.log(usage)
} else if (values.list) {
  for (const { name, about, peers: known, full, quick } of scenarios) {
    console.log(
      `${name}: ${about}\n  peers: ${known.join(', ')}\n  full: ${JSON.stringify(full)}\n  quick: ${JSON.stringify(quick)}`,
    )
  }
} else {
  const wanted = positionals.length > 0 ? positionals : ['send', 'drain', 'end-to-end', 'latency']
  const strange = wanted.filter((name) => !scenarios.some((scenario) => scenario.name === name))
  if (strange.length > 0) refuse(`no scenario named ${strange.join(', ')}`)
  const named = values.peer?.split(',')
  const unknown = (named ?? []).filter((name) => !peers.some((peer) => peer.name === name))
  if (unknown.length > 0)
    refuse(`no peer named ${unknown.join(', ')}; there are ${peers.map(({ name }) => name).join(', ')}`)
  if (values.runs !== undefined && !(Number(values.runs) >= 1)) refuse('--runs is a number from 1')
  if (!['memory', 'aof'].includes(values.redis)) refuse('--redis is memory or aof')
  const set = settings(values.set)
  const options = Object.assign({}, ...scenarios.filter(({ name }) => wanted.includes(name)).map(({ full }) => full))
  const odd = Object.keys(set).filter((name) => !Object.hasOwn(options, name))
  if (odd.length > 0) refuse(`no option ${odd.join(', ')} here; there are ${Object.keys(options).join(', ')}`)
  install()
  const { run } = await import('./run.mjs')
  process.exitCode = await run({
    scenarios: wanted.map((name) => scenarios.find((scenario) => scenario.name === name)),
    peers,
    named,
    set,
    quick: values.quick,
    json: values.json,
    runs: values.runs === undefined ? undefined : Number(values.runs),
    budgetS: values.quick && values.runs === undefined ? 170 : Infinity,
    redis: values.redis,
    profile: values.profile,
  })
}
