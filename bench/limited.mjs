// Shared by the scenarios of limited dispatch: a backlog behind one rate, and a fleet that works on it.
import { setTimeout as sleep } from 'node:timers/promises'
import { cpuSeconds } from './cpu.mjs'
import { startFleet } from './fleet.mjs'
import { fill, mostIn, refusedOf } from './load.mjs'

/** Parses a rate such as `200/s`. */
const perSecondOf = (rate) => Number.parseInt(rate, 10)

const peers = ['sluice', 'bullmq', 'dbos', 'celery-redis']

/** Makes a scenario that drains a backlog at its rate; `more` overrides parts of it. */
export function drainedAt({ name, workers, jobs = 2_000, rate = '200/s', ...more }) {
  return {
    name,
    about: `${workers} worker processes, a backlog behind a rate: executions a second, most beyond the promise in any second, claim calls and CPU for each job, time over the ideal`,
    peers,
    full: { jobs, rate, workers },
    quick: { jobs: 600, rate, workers },
    ...more,
    shape: ({ rate }) => ({ kind: 'limited', rate }),
    run: (asked) => limitedRun(name, asked),
  }
}

/** Makes a scenario whose backlog is far above its rate, which measures what waiting costs; `more` overrides parts of it. */
export function farBelow({ name, workers, ...more }) {
  return {
    name,
    about: `${workers} worker processes, 2,000 jobs waiting for a low rate: claim calls for each job, CPU while they wait, and with nothing to do`,
    peers: ['sluice', 'bullmq', 'dbos'],
    full: { jobs: 2_000, rate: '20/s', workers, seconds: 30, settle: 30 },
    quick: { jobs: 2_000, rate: '20/s', workers, seconds: 10, settle: 5 },
    ...more,
    shape: ({ rate }) => ({ kind: 'limited', rate }),
    run: (asked) => farBelowRun(name, asked),
  }
}

async function limitedRun(name, { peer, place, pids, options: { jobs, rate, workers }, shape }) {
  const session = await peer.open(place, shape)
  await fill(session, jobs)
  const fleet = await startFleet({ peer, place, shape, count: workers })
  const spent = meter({ fleet, session, pids })
  await fleet.go()
  await fleet.until(1, 60)
  // Measured from the first job on, without starting up.
  const before = await spent()
  const nominal = perSecondOf(rate)
  if (!(await fleet.until(jobs, (jobs / nominal) * 5 + 60))) throw new Error(`only ${fleet.ran()} of ${jobs} jobs ran`)
  const after = await spent()
  const results = await fleet.stop()
  await session.close()
  const eachOf = (what) =>
    before[what] === undefined ? undefined : (after[what] - before[what]) / (after.ran - before.ran)
  const per1000 = (what) => (before[what] === undefined ? undefined : eachOf(what) * 1000)
  const lines = limitedLines(name, {
    times: results.flatMap(({ times }) => times),
    nominal,
    promise: peer.promise({ rate }),
    callsPerJob: eachOf('calls'),
    cpuPer1000: per1000('cpu'),
    serverPer1000: per1000('server'),
  })
  return [...lines, ...tallyLines(name, before, after)]
}

/** Reads the totals so far: jobs, claims (of the workers, or scripts of the server), CPU seconds of all and of the server. */
export function meter({ fleet, session, pids }) {
  return async () => ({
    ran: fleet.ran(),
    calls: (await session.sharedCalls?.()) ?? fleet.calls(),
    tally: fleet.tally(),
    cpu: cpuSeconds([...fleet.pids, ...pids]),
    server: cpuSeconds(pids),
  })
}

/** Returns how often a limiter beside the store was called between two readings, for peers that count it. */
function tallyLines(name, before, after) {
  if (after.tally === undefined) return []
  const { grants, refunds, vain, settles, claims } = Object.fromEntries(
    Object.entries(after.tally).map(([what, count]) => [what, count - before.tally[what]]),
  )
  const ran = after.ran - before.ran
  return [
    { bench: `${name}-refunds`, value: (refunds / grants) * 100, unit: 'given back per 100 grants' },
    { bench: `${name}-vain`, value: (vain / grants) * 100, unit: 'asked for in vain per 100 grants' },
    { bench: `${name}-settles`, value: settles / ran, unit: 'calls/job' },
    { bench: `${name}-claims`, value: claims / ran, unit: 'calls/job' },
  ]
}

/** Makes the lines of a drain at a rate from the times (ms) at which its jobs began. */
export function limitedLines(
  name,
  { times, nominal, promise: { burst, perSecond, worst }, callsPerJob, cpuPer1000, serverPer1000 },
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
    { bench: `${name}-refused`, value: refusedOf(sorted, nominal, 1000), unit: 'a vendor of the nominal rate refuses' },
    { bench: `${name}-calls`, value: callsPerJob, unit: 'calls/job' },
    { bench: `${name}-cpu`, value: cpuPer1000, unit: 'CPU s/1000 jobs' },
    { bench: `${name}-cpu-server`, value: serverPer1000, unit: 'CPU s/1000 jobs' },
    { bench: `${name}-drain`, value: tookS / ((times.length - burst) / perSecond), unit: 'x ideal' },
    { bench: `${name}-share`, value: (perSecond / nominal) * 100, unit: '% of the nominal rate is promised' },
    { bench: `${name}-used`, value: usedOf(sorted, nominal), unit: '% of the nominal rate after two seconds' },
  ]
}

/** Returns the part of the nominal rate, in percent, that was used after two seconds, in which a burst may go. */
function usedOf(sorted, nominal) {
  const later = sorted.filter((ms) => ms >= sorted[0] + 2_000)
  if (later.length < 2) return undefined
  return ((later.length - 1) / ((later.at(-1) - later[0]) / 1000) / nominal) * 100
}

async function farBelowRun(name, { peer, place, pids, options: { jobs, rate, workers, seconds, settle }, shape }) {
  const session = await peer.open(place, shape)
  const fleet = await startFleet({ peer, place, shape, count: workers })
  const watched = [...fleet.pids, ...pids]
  await fleet.go()
  // By then the workers are registered, have claimed once, and sleep. V8 goes on compiling for some 20 s.
  await sleep(settle * 1_000 + workers * 200)
  const idle = await shareOfCore(watched, seconds / 3)
  await fill(session, jobs)
  await fleet.until(1, 60)
  const spent = meter({ fleet, session, pids })
  const before = await spent()
  const waiting = shareOfCore(watched, seconds)
  await sleep((seconds / 3) * 1000)
  // By then all workers have claimed.
  const settled = await spent()
  const waited = await waiting
  const after = await spent()
  await fleet.stop()
  await session.close()
  const ran = after.ran - before.ran
  const callsFrom = (from) =>
    from.calls === undefined ? undefined : (after.calls - from.calls) / (after.ran - from.ran)
  const cpu = waited === undefined ? undefined : ((after.cpu - before.cpu) / ran) * 1000
  return [
    { bench: `${name}-rate`, value: ran / seconds, unit: 'jobs/s', nominal: perSecondOf(rate) },
    { bench: `${name}-calls`, value: callsFrom(before), unit: 'calls/job' },
    { bench: `${name}-calls-later`, value: callsFrom(settled), unit: 'calls/job after a third of the time' },
    { bench: `${name}-cpu`, value: cpu, unit: 'CPU s/1000 jobs' },
    { bench: `${name}-cpu-waiting`, value: waited, unit: '% of a core' },
    { bench: `${name}-cpu-idle`, value: idle, unit: '% of a core' },
    ...tallyLines(name, before, after),
  ]
}

async function shareOfCore(pids, seconds) {
  const from = reading(pids)
  await sleep(seconds * 1000)
  const to = reading(pids)
  if (from.cpu === undefined) return undefined
  return ((to.cpu - from.cpu) / ((to.atMs - from.atMs) / 1000)) * 100
}

/** On a busy machine a reading takes long, so its time is the middle of it. */
function reading(pids) {
  const sinceMs = performance.now()
  const cpu = cpuSeconds(pids)
  return { cpu, atMs: (sinceMs + performance.now()) / 2 }
}
