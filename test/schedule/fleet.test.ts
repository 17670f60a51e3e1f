/** Schedules with real processes on a real server: each second once, whichever process dies. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { afterEach, expect, test } from 'vitest'
import { Sluice } from '../../src/sluice.ts'
import { startPostgres } from '../servers/postgres.ts'
import { until } from '../until.ts'
import { member } from '../v8.ts'

const file = fileURLToPath(new URL('./member.mjs', import.meta.url))
const children = new Set<ChildProcess>()

// Processes that a failed test left would be a load on the next.
afterEach(() => children.forEach((child) => child.kill('SIGKILL')))

/** Starts a worker process; with `crashAt` it kills itself there. Resolves when it works. */
async function enter(url: string, crashAt = ''): Promise<ChildProcess> {
  const env = { ...process.env, ...(crashAt === '' ? {} : { SLUICE_CRASH_AT: crashAt }) }
  const child = spawn(process.execPath, [...member, file, url], { env, stdio: ['ignore', 'pipe', 'inherit'] })
  children.add(child)
  await once(createInterface(child.stdout), 'line')
  return child
}

interface Instant {
  schedule: string
  ms: number
  outcome: string
  job: string | null
}

/** The outcome of each instant, in order; a stretch that was missed must have none. */
async function instants(sluice: Sluice): Promise<Instant[]> {
  const rows = await sluice.db.query<{ ms: string } & Omit<Instant, 'ms'>>(
    `select schedule, (extract(epoch from at) * 1000)::bigint as ms, outcome, job from sluice.firing order by schedule, at`,
  )
  return rows.map((row) => ({ ...row, ms: Number(row.ms) }))
}

test('4 processes send each second once, while one dies before it sends, one after, one by kill -9, and the server crashes', async () => {
  const server = await startPostgres()
  const sluice = await Sluice.open({ store: server.url })
  const count = async (from: string) =>
    Number((await sluice.db.query<{ n: string }>(`select count(*) as n from ${from}`))[0]?.n)
  const fired = async (least: number) => (await count('sluice.firing').catch(() => 0)) >= least
  const crashAt = ['', '', 'schedule.fire', 'schedule.fired']
  const members = await Promise.all(crashAt.map((point) => enter(server.url, point)))
  await until(() => fired(6))
  members[0]?.kill('SIGKILL')
  await until(() => members.slice(2).every((child) => child.signalCode !== null), 'dead where they should')
  await until(() => fired(10))
  await server.stop('immediate')
  await server.start()
  const back = await count('sluice.firing')
  await until(() => fired(back + 6))
  members.push(await enter(server.url))
  members[1]?.kill('SIGTERM')
  const since = await count('sluice.firing')
  await until(() => fired(since + 4))
  members[4]?.kill('SIGTERM')
  await until(() => members.every((child) => child.exitCode !== null || child.signalCode !== null), 'all ended')

  const all = await instants(sluice)
  const jobs = await sluice.db.query<{ id: string; tags: string[] }>(
    'select id, tags from sluice.job union all select id, tags from sluice.done',
  )
  const tags = new Map(jobs.map((job) => [job.id, job.tags]))
  for (const name of ['seconds', 'every']) {
    const own = all.filter((each) => each.schedule === name)
    // No second is left out, and none comes twice.
    expect(own.map(({ ms }) => ms)).toEqual(own.map((_, i) => (own[0]?.ms ?? 0) + i * 1_000))
    expect(own.filter(({ outcome }) => outcome === 'missed')).toEqual([])
    const sent = own.filter(({ outcome }) => outcome === 'sent')
    if (name === 'seconds') expect(sent.length).toBe(own.length)
    for (const { ms, job } of sent)
      expect(tags.get(job ?? '')).toEqual([`schedule:${name}`, `scheduled-for:${new Date(ms).toISOString()}`])
  }
  // And every job has a record that names it.
  expect(jobs.length).toBe(all.filter(({ outcome }) => outcome === 'sent').length)
  await sluice.close()
  await server.close()
}, 300_000)
