// What the scenarios of limited dispatch have in common: a backlog behind one rate, and a fleet that works on it.
import { setTimeout as sleep } from 'node:timers/promises'
import { cpuSeconds } from './cpu.mjs'
import { startFleet } from './fleet.mjs'
import { fill, mostIn } from './load.mjs'

/** `200/s` as numbers. */
const perSecondOf = (rate) => Number.parseInt(rate, 10)

const peers = ['sluice', 'bullmq', 'dbos', 'celery-redis']

/** A backlog drained at its rate. */
export function drainedAt({ name, workers }) {
  return {
    name,
    about: `${workers} worker processes, a backlog behind a rate: executions a second, most beyond the promise in any second, claim calls and CPU for each job, time over the ideal`,
    peers,
    full: { jobs: 2_000, rate: '200/s', workers },
    quick: { jobs: 600, rate: '200/s', workers },
    shape: ({ rate }) => ({ kind: 'limited', rate }),
    run: (asked) => limitedRun(name, asked),
  }
}

/** A rate far below what is waiting: what the waiting costs. */
export function farBelow({ name, workers }) {
  return {
    name,
    about: `${workers} worker processes, 2,000 jobs waiting for a low rate: claim calls for each job, CPU while they wait, and with nothing to do`,
    peers: ['sluice', 'bullmq', 'dbos'],
    full: { jobs: 2_000, rate: '20/s', workers, seconds: 30 },
    quick: { jobs: 2_000, rate: '20/s', workers, seconds: 10 },
    shape: ({ rate }) => ({ kind: 'limited', rate }),
    run: (asked) => farBelowRun(name, asked),
  }
}

async function limitedRun(name, { peer, place, pids, options: { jobs, rate, workers }, shape }) {
  const session = await peer.open(place, shape)
  await fill(session, jobs)
  const fleet = await startFleet({ peer, place, shape, count: workers })
  const watched = [...fleet.pids, ...pids]
  const sharedBefore = await session.sharedCalls?.()
  await fleet.go()
  await fleet.until(1, 60)
  // From the first job on: starting up is not counted.
  const [ranBefore, cpuBefore, serverBefore] = [fleet.ran(), cpuSeconds(watched), cpuSeconds(pids)]
  const nominal = perSecondOf(rate)
  if (!(await fleet.until(jobs, (jobs / nominal) * 5 + 60))) throw new Error(`only ${fleet.ran()} of ${jobs} jobs ran`)
  const [cpu, server] = [cpuSeconds(watched), cpuSeconds(pids)]
  const per1000 = (from, to) => (from === undefined ? undefined : ((to - from) / (jobs - ranBefore)) * 1000)
  const shared = sharedBefore === undefined ? undefined : (await session.sharedCalls()) - sharedBefore
  const results = await fleet.stop()
  await session.close()
  const calls = shared ?? sum(results.map((result) => result.calls))
  return limitedLines(name, {
    times: results.flatMap(({ times }) => times),
    nominal,
    promise: peer.promise({ rate }),
    calls,
    cpuPer1000: per1000(cpuBefore, cpu),
    serverPer1000: per1000(serverBefore, server),
  })
}

const sum = (numbers) => (numbers.includes(undefined) ? undefined : numbers.reduce((a, b) => a + b, 0))

/** The lines of a drain at a rate, from the times (ms) at which its jobs began. */
export function limitedLines(
  name,
  { times, nominal, promise: { burst, perSecond, worst }, calls, cpuPer1000, serverPer1000 },
) {
  const sorted = times.toSorted((a, b) => a - b)
  const tookS = (sorted.at(-1) - sorted[0]) / 1000
  const most = mostIn(sorted, 1000)
  return [
    { bench: `${name}-rate`, value: (sorted.length - 1) / tookS, unit: 'jobs/s' },
    { bench: `${name}-most`, value: most, unit: 'in a second' },
    {
      bench: `${name}-excess`,
      value: Math.max(most / worst - 1, 0) * 100,
      unit: '% over the promise',
      promised: worst,
    },
    { bench: `${name}-calls`, value: calls === undefined ? undefined : calls / times.length, unit: 'calls/job' },
    { bench: `${name}-cpu`, value: cpuPer1000, unit: 'CPU s/1000 jobs' },
    { bench: `${name}-cpu-server`, value: serverPer1000, unit: 'CPU s/1000 jobs' },
    { bench: `${name}-drain`, value: tookS / ((times.length - burst) / perSecond), unit: 'x ideal' },
    { bench: `${name}-share`, value: (perSecond / nominal) * 100, unit: '% of the nominal rate is promised' },
  ]
}

async function farBelowRun(name, { peer, place, pids, options: { jobs, rate, workers, seconds }, shape }) {
  const session = await peer.open(place, shape)
  const fleet = await startFleet({ peer, place, shape, count: workers })
  const watched = [...fleet.pids, ...pids]
  await fleet.go()
  // Registered, looked once, gone to sleep.
  await sleep(3_000 + workers * 200)
  const idle = await shareOfCore(watched, seconds / 3)
  const sharedBefore = await session.sharedCalls?.()
  await fill(session, jobs)
  await fleet.until(1, 60)
  const ranBefore = fleet.ran()
  const waiting = await shareOfCore(watched, seconds)
  const ran = fleet.ran() - ranBefore
  const shared = sharedBefore === undefined ? undefined : (await session.sharedCalls()) - sharedBefore
  const results = await fleet.stop()
  await session.close()
  const calls = shared ?? sum(results.map((result) => result.calls))
  const all = results.flatMap(({ times }) => times).length
  return [
    { bench: `${name}-rate`, value: ran / seconds, unit: 'jobs/s', nominal: perSecondOf(rate) },
    { bench: `${name}-calls`, value: calls === undefined ? undefined : calls / all, unit: 'calls/job' },
    {
      bench: `${name}-cpu`,
      value: waiting === undefined ? undefined : ((waiting / 100) * seconds * 1000) / ran,
      unit: 'CPU s/1000 jobs',
    },
    { bench: `${name}-cpu-waiting`, value: waiting, unit: '% of a core' },
    { bench: `${name}-cpu-idle`, value: idle, unit: '% of a core' },
  ]
}

async function shareOfCore(pids, seconds) {
  const from = reading(pids)
  await sleep(seconds * 1000)
  const to = reading(pids)
  if (from.cpu === undefined) return undefined
  return ((to.cpu - from.cpu) / ((to.atMs - from.atMs) / 1000)) * 100
}

/** On a busy machine reading takes its time: it counts as of its middle. */
function reading(pids) {
  const sinceMs = performance.now()
  const cpu = cpuSeconds(pids)
  return { cpu, atMs: (sinceMs + performance.now()) / 2 }
}
