// The report: progress on stderr, medians with their range on stdout.
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { availableParallelism, cpus, release, totalmem, type } from 'node:os'

/** A sample counts as disturbed if other processes used more than this fraction of the machine. */
const disturbedFrom = 0.1

const round = (value) => (value === undefined ? undefined : Number(value.toPrecision(4)))

/** Collects samples by bench and peer. */
export class Report {
  failures = 0
  #json
  #samples = new Map()

  constructor(json) {
    this.#json = json
  }

  /** Prints the machine and versions. */
  machine() {
    const model = cpus()[0]?.model ?? 'unknown processor'
    const memory = `${Math.round(totalmem() / 2 ** 30)} GiB`
    const system = `${type()} ${release()}`
    console.error(
      `${availableParallelism()} x ${model.trim()}, ${memory}, ${system}, Node ${process.version}, Sluice ${commit()}`,
    )
  }

  /** Adds a sample: its lines { bench, value, unit, … }. */
  add({ lines, peer, config, about, tookS, disturbed }) {
    const isDisturbed = disturbed !== undefined && disturbed > disturbedFrom
    for (const { bench, value, unit, ...more } of lines) {
      if (value === undefined || Number.isNaN(value)) continue
      const key = JSON.stringify([bench, peer, unit])
      const known = this.#samples.get(key) ?? { bench, peer, unit, values: [], disturbed: 0, config, more }
      known.values.push(value)
      known.disturbed += isDisturbed ? 1 : 0
      this.#samples.set(key, known)
    }
    const said = lines
      .filter(({ value }) => value !== undefined && !Number.isNaN(value))
      .map(({ bench, value, unit }) => `${bench} ${round(value)} ${unit}`)
      .join(', ')
    const others = isDisturbed ? ` (others took ${Math.round(disturbed * 100)} % of the machine)` : ''
    console.error(`${about} (${Math.round(tookS)} s): ${said}${others}`)
  }

  fail(about, error) {
    this.failures += 1
    console.error(`${about} failed: ${error.message}`)
  }

  print() {
    const lines = [...this.#samples.values()].map(lineOf)
    if (this.#json) {
      for (const line of lines) console.log(JSON.stringify(line))
      return
    }
    const wide = (text, width) => String(text).padEnd(width)
    const benches = [...new Set(lines.map(({ bench }) => bench))]
    for (const bench of benches) {
      const own = lines.filter((line) => line.bench === bench)
      // A table for each bench with several peers; then the others, one after the other.
      if (own.length > 1) console.log('')
      for (const { peer, value, unit, min, max, runs, disturbed } of own) {
        const range = `(${min} .. ${max}, ${runs} run${runs === 1 ? '' : 's'})${disturbed > 0 ? ` (f: ${disturbed})` : ''}`
        console.log(`${wide(bench, 26)} ${wide(peer, 18)} ${wide(value, 10)} ${unit} ${range}`)
      }
    }
    const settings = new Map(
      lines.map(({ peer, config }) => [
        `${peer}: ${[config.version, config.settings].filter(Boolean).join('; ')}`,
        config.server,
      ]),
    )
    console.log('')
    for (const [line, server] of settings) console.log(`${line}; ${server}`)
    if (lines.some(({ disturbed }) => disturbed > 0)) {
      console.log(
        `(f: n): n runs were disturbed by other processes (more than ${disturbedFrom * 100} % of the machine)`,
      )
    }
  }
}

function lineOf({ bench, peer, unit, values, disturbed, config, more }) {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = sorted.length >> 1
  const median = sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
  return {
    bench,
    peer,
    value: round(median),
    unit,
    min: round(sorted[0]),
    max: round(sorted.at(-1)),
    runs: sorted.length,
    disturbed,
    ...more,
    config,
  }
}

function commit() {
  const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'))
  try {
    const options = { cwd: new URL('.', import.meta.url), encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }
    return `${version} (${execFileSync('git', ['describe', '--always', '--dirty'], options).trim()})`
  } catch {
    return version
  }
}
