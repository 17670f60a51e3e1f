// Shared by the scenarios with many queues: a million jobs a day over 24 queues with 24 rules, and load spikes.
import { setTimeout as sleep } from 'node:timers/promises'
import { cpuSeconds } from './cpu.mjs'
import { counter, message, monotonicMs, quantile } from './load.mjs'

const dayS = 86_400
const tickMs = 100
/** How often, in seconds, one queue gets a second's load of all queues at once. */
const spikeS = 5

/** Makes a scenario of `times` a million jobs a day, over 24 queues with a rule for each. */
export function dayOver({ name, times }) {
  return {
    name,
    about: `${times} x a million jobs a day over 24 queues with 24 rules, a spike every ${spikeS} s: start latency, claim calls and CPU for each job`,
    peers: ['sluice'],
    full: { queues: 24, perDay: times * 1e6, seconds: 60 },
    quick: { queues: 24, perDay: times * 1e6, seconds: 10 },
    shape: ({ queues }) => ({ kind: 'queues', queues, concurrency: 100 }),
    run: (asked) => dayRun(name, asked),
  }
}

async function dayRun(name, { peer, place, pids, options: { queues, perDay, seconds }, shape }) {
  const session = await peer.open(place, shape)
  const took = []
  const ran = counter()
  const worker = await session.work(({ since }) => {
    took.push(monotonicMs() - since)
    ran.handle()
  })
  let sent = 0
  const sends = []
  const send = (queue) => {
    const n = sent++
    const input = { ...message, accountId: `a${n % 1000}`, n, queue: queue ?? n % queues, since: monotonicMs() }
    sends.push(session.sendOne(input))
  }
  for (let i = 0; i < queues * 2; i++) send()
  await Promise.all(sends)
  await ran.until(sent)
  const warmUp = sent
  took.length = 0
  const all = [process.pid, ...pids]
  const [cpu, calls, sinceMs] = [cpuSeconds(all), session.calls(), performance.now()]
  let spikes = 0
  while (performance.now() - sinceMs < seconds * 1000) {
    const passedS = (performance.now() - sinceMs) / 1000
    const due = Math.floor((perDay / dayS) * passedS) - (sent - warmUp)
    for (let i = 0; i < due; i++) send()
    if (passedS > (spikes + 1) * spikeS) {
      // A spike is taken from the steady rate that follows it, so that the day's total stays.
      for (let i = 0; i < perDay / dayS; i++) send(spikes % queues)
      spikes += 1
    }
    await sleep(tickMs)
  }
  await Promise.all(sends)
  await ran.until(sent)
  const jobs = sent - warmUp
  const used = cpu === undefined ? undefined : cpuSeconds(all) - cpu
  const tookS = (performance.now() - sinceMs) / 1000
  const claims = session.calls() - calls
  await worker.stop()
  await session.close()
  return [
    { bench: `${name}-rate`, value: jobs / tookS, unit: 'jobs/s' },
    { bench: `${name}-p50`, value: quantile(took, 0.5), unit: 'ms' },
    { bench: `${name}-p99`, value: quantile(took, 0.99), unit: 'ms' },
    { bench: `${name}-calls`, value: claims / jobs, unit: 'calls/job' },
    { bench: `${name}-cpu`, value: used === undefined ? undefined : (used / jobs) * 1000, unit: 'CPU s/1000 jobs' },
    { bench: `${name}-core`, value: used === undefined ? undefined : (used / tookS) * 100, unit: '% of a core' },
  ]
}
