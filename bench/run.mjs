// Takes the samples, interleaved (round by round, in each round every scenario, in each scenario every peer), so that
// drift of the machine affects all alike. Each sample is a process, on servers that only this benchmark uses.
import { fork } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { fileURLToPath } from 'node:url'
import { cpuSeconds, machineLoad } from './cpu.mjs'
import { Report } from './report.mjs'

const sampler = fileURLToPath(new URL('sample.mjs', import.meta.url))

/** The servers, each started when the first peer needs it. */
class Servers {
  #started = new Map()
  #options

  constructor(options) {
    this.#options = options
  }

  start(name) {
    if (!this.#started.has(name)) {
      const starting = import(`./servers/${name}.mjs`).then(({ start }) => start(this.#options))
      starting.catch(() => {})
      this.#started.set(name, starting)
    }
    return this.#started.get(name)
  }

  async close() {
    for (const starting of this.#started.values()) await (await starting.catch(() => undefined))?.close()
  }
}

/** Takes all samples, then prints the report; resolves to the exit code. */
export async function run({ scenarios, peers, named, set, quick, json, runs, budgetS, redis, profile }) {
  const servers = new Servers({ redis })
  const report = new Report(json)
  const cells = scenarios.flatMap((scenario) =>
    peers
      .filter(
        ({ name, slow }) =>
          scenario.peers.includes(name) && (named?.includes(name) ?? !(quick && slow && scenario.peers.length > 1)),
      )
      .map((peer) => ({ scenario, peer, options: optionsOf({ scenario, peer, set, quick }) })),
  )
  if (cells.length === 0) {
    console.error('Nothing to do: none of these peers takes part in these scenarios; --list says which do.')
    return 2
  }
  report.machine()
  const stop = () => {
    report.print()
    process.exit(130)
  }
  process.once('SIGINT', stop)
  const sinceMs = performance.now()
  try {
    const runsOf = (scenario) => runs ?? Math.min(scenario.runs ?? Infinity, quick ? 3 : 5)
    const rounds = Math.max(...cells.map(({ scenario }) => runsOf(scenario)))
    for (let round = 1; round <= rounds; round++) {
      for (const cell of cells.filter(({ scenario }) => round <= runsOf(scenario))) {
        await take(cell, { servers, report, round, runs: runsOf(cell.scenario), profile })
      }
      const spentS = (performance.now() - sinceMs) / 1000
      // The next round takes about as long as the previous ones.
      if (round < rounds && spentS + spentS / round > budgetS) break
    }
  } finally {
    await servers.close()
  }
  process.off('SIGINT', stop)
  report.print()
  return report.failures === 0 ? 0 : 1
}

function optionsOf({ scenario, peer, set, quick }) {
  const options = { ...scenario.full, ...(quick ? scenario.quick : {}), ...set }
  const own = Object.keys({ ...scenario.full, ...scenario.quick })
  const kept = Object.fromEntries(Object.entries(options).filter(([name]) => own.includes(name)))
  // Fewer jobs for peers that would take minutes for what others do in a second; the line shows how many.
  if (scenario.isPaced !== true && peer.jobsMax !== undefined && kept.jobs > peer.jobsMax) kept.jobs = peer.jobsMax
  return kept
}

async function take({ scenario, peer, options }, { servers, report, round, runs, profile }) {
  const about = `${scenario.name} of ${peer.name}, ${round} of ${runs}`
  let place
  try {
    const needed = [scenario.server ?? peer.server ?? []].flat()
    const started = []
    for (const name of needed) started.push(await servers.start(name))
    place = await placeOn(started, needed)
    const pids = started.map(({ pid }) => pid)
    const others = watchOthers()
    const sinceMs = performance.now()
    const limitS = scenario.limitS?.(options) ?? 900
    const asked = { scenario: scenario.name, peer: peer.name, place: place.told, pids, options }
    const { lines, settings } = await sample(asked, limitS, profile)
    const config = { ...options, settings, version: versionOf(peer), server: aboutOf(started) }
    report.add({
      lines,
      peer: peer.name,
      config,
      about,
      tookS: (performance.now() - sinceMs) / 1000,
      disturbed: others(),
    })
  } catch (error) {
    report.fail(about, error)
  } finally {
    await place?.remove?.().catch((error) => report.fail(about, error))
  }
}

/** Returns what a sample needs of its servers: its place on the first one, the others by name, and how to clear them. */
async function placeOn(servers, names) {
  const [told, removals] = [{}, []]
  for (const [i, server] of servers.entries()) {
    const { remove, ...place } = await server.place()
    removals.push(remove)
    Object.assign(told, i === 0 ? place : { [names[i]]: place })
  }
  return { told, remove: () => Promise.all(removals.map((remove) => remove())) }
}

const aboutOf = (servers) => (servers.length === 0 ? 'none' : servers.map(({ about }) => about).join('; '))

/** Starts to measure how busy the machine is with other processes; call the result for the fraction. */
function watchOthers() {
  const sinceMs = performance.now()
  const busy = machineLoad()
  const ours = cpuSeconds([process.pid])
  return () => {
    if (ours === undefined) return undefined
    const all = ((performance.now() - sinceMs) / 1000) * availableParallelism()
    return Math.max(busy() - (cpuSeconds([process.pid]) - ours) / all, 0)
  }
}

/** Takes one sample in a separate process, which is killed after `limitS` seconds. */
function sample(asked, limitS, profile) {
  return new Promise((resolve, reject) => {
    const execArgv = profile === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${profile}`]
    const child = fork(sampler, [], { execArgv, stdio: ['ignore', 2, 2, 'ipc'] })
    let answer
    const late = setTimeout(() => {
      answer = { error: `no answer in ${limitS} s` }
      child.kill('SIGKILL')
    }, limitS * 1000)
    child.once('message', (told) => (answer ??= told))
    child.once('error', reject)
    child.once('exit', (code, signal) => {
      clearTimeout(late)
      if (answer?.lines !== undefined) resolve(answer)
      else reject(new Error(answer?.error ?? `its process ended with ${signal ?? `code ${code}`}`))
    })
    child.send(asked)
  })
}

/** Returns the installed versions of a peer's packages. */
function versionOf({ packages = [] }) {
  const places = ['./node_modules', '../node_modules'].flatMap((from) =>
    packages.map((name) => [name, `${from}/${name}`]),
  )
  const versions = new Map(packages.includes('sluice') ? [['sluice', version('..')]] : [])
  for (const [name, place] of places)
    if (!versions.has(name) && version(place) !== undefined) versions.set(name, version(place))
  return [...versions].map(([name, found]) => `${name} ${found}`).join(', ')
}

function version(folder) {
  const file = new URL(`${folder}/package.json`, import.meta.url)
  return existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')).version : undefined
}
