// Drives Celery: its producer and workers are Python processes, which write what they ran to a file.
import { execFile, execFileSync, spawn } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { install } from '../scripts/postgres.mjs'
import { cpuFrom, cpuSeconds } from './cpu.mjs'
import { limitedLines } from './limited.mjs'
import { latencies } from './scenarios/latency.mjs'
import { tenantLines } from './scenarios/tenants.mjs'

const folder = fileURLToPath(new URL('celery/', import.meta.url))
const recordBytes = 16
const pool = ['-P', 'prefork', '-c', '2']

/** Finds a Python with Celery: Debian's, or the one in PATH, or Debian's after installing the package. */
async function python() {
  const find = () => ['/usr/bin/python3', 'python3'].find((file) => says(file, 'import celery, redis') !== undefined)
  const found = find()
  if (found !== undefined) return found
  if (process.getuid?.() === 0 && existsSync('/etc/debian_version')) {
    for (const name of ['python3-celery', 'python3-redis']) await install(name)
  }
  const installed = find()
  if (installed === undefined)
    throw new Error('No Python 3 with celery and redis: apt-get install python3-celery python3-redis.')
  return installed
}

function says(file, code) {
  try {
    return execFileSync(file, ['-c', code], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim()
  } catch {
    return undefined
  }
}

/** Runs Celery on one broker, for one sample. */
export async function openCelery({ url, queue = 'bench' }, env = {}) {
  const file = await python()
  const dir = mkdtempSync(join(tmpdir(), 'sluice-bench-celery-'))
  const runs = join(dir, 'runs')
  const all = {
    ...process.env,
    BENCH_BROKER: url,
    BENCH_QUEUE: queue,
    BENCH_RUNS: runs,
    PYTHONDONTWRITEBYTECODE: '1',
    ...env,
  }
  const workers = []
  const end = () => {
    for (const { pid } of workers.splice(0)) process.kill(-pid, 'SIGKILL')
    rmSync(dir, { recursive: true, force: true })
  }
  process.once('exit', end)
  const ran = () => (existsSync(runs) ? statSync(runs).size / recordBytes : 0)
  return {
    pids: () => workers.map(({ pid }) => pid),
    ran,
    async produce(...args) {
      const options = { cwd: folder, env: all }
      const { stdout } = await promisify(execFile)(file, ['produce.py', ...args.map(String)], options)
      return stdout
    },
    /** Resolves when all workers consume. */
    async work(count) {
      for (let i = 0; i < count; i++) {
        const args = ['-m', 'celery', '-A', 'tasks', 'worker', ...pool, '-n', `w${i}@%h`, '--loglevel=ERROR']
        // A process group of its own, so that its children end with it.
        workers.push(spawn(file, args, { cwd: folder, env: all, detached: true, stdio: 'ignore' }))
      }
      const ready = () => readdirSync(dir).filter((name) => name.includes('.ready.')).length
      await untilTrue(() => ready() === count, 120, `${count} Celery workers are ready`)
    },
    /** Resolves when enough jobs ran, or none for a while. */
    async until(jobs, limitS, quietMs = Infinity) {
      let last = { count: 0, atMs: performance.now() }
      const isDone = () => {
        const count = ran()
        if (count !== last.count) last = { count, atMs: performance.now() }
        return count >= jobs || performance.now() - last.atMs > quietMs
      }
      await untilTrue(isDone, limitS, `${jobs} jobs ran`)
    },
    /** Returns the jobs that ran, by time: { at: ms, mark }. */
    records() {
      const bytes = readFileSync(runs)
      const list = Array.from({ length: Math.floor(bytes.length / recordBytes) }, (_, i) => ({
        at: Number(bytes.readBigUInt64LE(i * recordBytes)) / 1e6,
        mark: Number(bytes.readBigUInt64LE(i * recordBytes + 8)),
      }))
      return list.toSorted((a, b) => a.at - b.at)
    },
    end,
  }
}

async function untilTrue(isTrue, limitS, what) {
  const sinceMs = performance.now()
  while (!isTrue()) {
    if (performance.now() - sinceMs > limitS * 1000) throw new Error(`not within ${limitS} s: ${what}`)
    await sleep(20)
  }
}

async function send({ place, options }) {
  const celery = await openCelery(place)
  const value = Number(await celery.produce('single', options.seconds))
  celery.end()
  return [{ bench: 'send-single', value, unit: 'jobs/s' }]
}

async function drain({ place, pids, options: { jobs } }) {
  const celery = await openCelery(place)
  await celery.produce('fill', jobs)
  await celery.work(1)
  await celery.until(1, 60)
  const watched = [...celery.pids(), ...pids]
  const [ranBefore, cpu] = [celery.ran(), cpuFrom(watched)]
  await celery.until(jobs, 600)
  const used = cpu(jobs - ranBefore)
  const records = celery.records()
  celery.end()
  return [
    { bench: 'drain', value: (records.length - 1) / ((records.at(-1).at - records[0].at) / 1000), unit: 'jobs/s' },
    { bench: 'drain-cpu', value: used, unit: 'CPU s/1000 jobs' },
  ]
}

async function latency({ place, options: { jobs, gapMs } }) {
  const warmUp = 30
  const celery = await openCelery(place)
  await celery.work(1)
  await celery.produce('latency', jobs + warmUp, gapMs)
  await celery.until(jobs + warmUp, 60)
  const took = celery.records().map(({ at, mark }) => at - mark / 1e6)
  celery.end()
  return latencies(took.slice(warmUp))
}

/** The token bucket of the limited task: a tenth of the rate at once, then the rate. */
const bucket = (rate) => {
  const perSecond = Number.parseInt(rate, 10)
  const burst = Math.max(1, Math.floor(perSecond / 10))
  return { burst, perSecond, worst: perSecond + burst }
}
const bucketEnv = ({ burst, perSecond }) => ({ BENCH_CAPACITY: String(burst), BENCH_RATE: String(perSecond) })

/** 100 a minute and 20 at once, as the bucket was published, where a second stands for a minute. */
const publishedBucket = (rate) => {
  const perSecond = Number.parseInt(rate, 10)
  const burst = Math.ceil(perSecond / 5)
  return { burst, perSecond, worst: perSecond + burst }
}
/** If no job has run for this long, the missing ones were dropped. */
const lostAfterMs = 5_000

/** Returns how often the limiter was called in a sample on Redis; Celery runs no other scripts. */
async function asked({ url }) {
  const { Redis } = await import('ioredis')
  const client = new Redis(url)
  const count = Number(/cmdstat_evalsha:calls=(\d+)/.exec(await client.info('commandstats'))?.[1] ?? 0)
  client.disconnect()
  return count
}

const limited = (name, { promiseOf = bucket, task = 'limited' } = {}) =>
  async function limitedRun({ place, pids, options: { jobs, rate, workers } }) {
    const promise = promiseOf(rate)
    const celery = await openCelery(place, { ...bucketEnv(promise), BENCH_TASK: task })
    await celery.produce('limited', 1, jobs, 0)
    await celery.work(workers)
    await celery.until(1, 60)
    const watched = [...celery.pids(), ...pids]
    const [ranBefore, cpu, askedBefore] = [celery.ran(), cpuFrom(watched), await asked(place)]
    await celery.until(jobs, (jobs / promise.perSecond) * 5 + 60, task === 'published' ? lostAfterMs : Infinity)
    const ran = celery.ran() - ranBefore
    const cpuPer1000 = cpu(ran)
    const callsPerJob = ((await asked(place)) - askedBefore) / ran
    const times = celery.records().map(({ at }) => at)
    celery.end()
    return [
      ...limitedLines(name, { times, nominal: promise.perSecond, promise, callsPerJob, cpuPer1000 }),
      { bench: `${name}-lost`, value: (1 - times.length / jobs) * 100, unit: '% of the jobs never ran' },
    ]
  }

async function tenants({ place, pids, options: { tenants: count, hot, each, perTenant, seconds } }) {
  const perSecond = Number.parseInt(perTenant, 10)
  const promise = { burst: perSecond, perSecond, worst: perSecond * 2 }
  const celery = await openCelery(place, bucketEnv(promise))
  await celery.produce('limited', count, hot, each)
  await celery.work(1)
  const watched = [...celery.pids(), ...pids]
  const cpu = cpuSeconds(watched)
  await celery.until(1, 60)
  await sleep(seconds * 1000)
  const used = cpu === undefined ? undefined : cpuSeconds(watched) - cpu
  const records = celery.records()
  celery.end()
  const [times, keys] = [records.map(({ at }) => at), records.map(({ mark }) => `t${mark}`)]
  return tenantLines({ times, keys, seconds, perTenant, cpu: used, rssMb: undefined, promise })
}

/** Makes the peer of one broker; with Redis its tasks use the token bucket there. */
export function celeryOn({ name, server, task = 'limited' }) {
  const versions = () =>
    says('/usr/bin/python3', 'import celery, kombu; print(f"Celery {celery.__version__}, kombu {kombu.__version__}")')
  const shared = Object.fromEntries(
    ['shared-1', 'shared-8'].map((each) => [each, limited(each, { promiseOf: publishedBucket, task })]),
  )
  const rated = { 'limited-1': limited('limited-1'), 'limited-8': limited('limited-8'), tenants, ...shared }
  const retries = task === 'published' ? 'as published (3 retries)' : 'retry without end'
  return {
    name,
    server,
    slow: true,
    jobsMax: 10_000,
    settings: ({ kind }) =>
      `${versions() ?? 'Celery'}, ${pool.join(' ')}, prefetch multiplier 64, ignore_result` +
      (kind === 'limited' || kind === 'tenants' ? `, token bucket in Lua on Redis, ${retries}` : ''),
    own: task === 'published' ? shared : { send, drain, latency, ...(server === 'redis' ? rated : {}) },
  }
}
