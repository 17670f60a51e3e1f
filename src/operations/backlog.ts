/** Counts waiting jobs, by queue and task and by limit, with what stops them. The cost does not grow with the number of jobs. */
import { limitOf } from '../core/bucket.ts'
import type { Sql } from '../db/store.ts'
import { type Group, keyOf, limitStops, type Stop, stopsOf, stopsOfGroups, sumStops } from './backlog-stops.ts'
import type { Pausing } from './explanation.ts'

/** The jobs of a task that wait in a queue. */
export interface WaitingJobs {
  task: string
  queue: string
  waiting: number
  oldestAt: Date | undefined
  /** Jobs that ended within the last minute. */
  perMinute: number
  /** Jobs that were sent within the last minute. */
  sentPerMinute: number
  /**
   * By how many the jobs become more in a minute; below 0: fewer. By the last minute; but by the last ten seconds if more jobs have
   * ended in these than were sent, by more than chance: a burst of sends is over before its minute is.
   */
  growthPerMinute: number
  /** The present name, if the task was renamed. */
  currently: string | undefined
  /** Nobody will run them: workers live, and none of them can. */
  isAbandoned: boolean
  stops: Stop[]
}

/** The jobs that wait and need a limit, and what the limit does. */
export interface LimitLoad {
  limit: string
  waiting: number
  /** How many of its keys jobs wait for. */
  keys: number
  /** Those for which most jobs wait, the greatest first, at most ten; none if the limit has no keys. */
  busiestKeys: KeyLoad[]
  oldestAt: Date | undefined
  /** Units granted within the last minute, less what was given back of them; millionths of a `currency`. */
  perMinute: number
  /** The currency of a limit in money, if it granted anything within the last minute: `USD`. */
  currency?: string
  stops: Stop[]
}

/** The jobs that wait and need one key of a limit. */
export interface KeyLoad {
  key: string
  waiting: number
  oldestAt: Date | undefined
  /** Undefined: the key has room. */
  stop: Stop | undefined
}

/** All that waits. */
export interface Backlog {
  /** Most jobs first. */
  jobs: WaitingJobs[]
  limits: LimitLoad[]
  /** False: more than 10,000 jobs wait, so the numbers are estimates. */
  isExact: boolean
}

interface ClassRow {
  task: string
  queue: string
  n: number
  oldest_ms: number | null
}

interface Obstacles {
  i: number
  gates: (Pausing & { gate: string; untilMs: number | null })[] | null
  knowing: number
  serving: number
  both: number
  able: number
  slots: number
  live: number
  currently: string | null
  seen_ms: number | null
}

interface Rate {
  kind: 'task' | 'sent' | 'limit'
  name: string
  queue: string | null
  n: number
  /** Of them, those of the last ten seconds. */
  lately: number | null
  span_ms: number | null
  currency: string | null
}

const countedMax = 10_000
const classesMax = 1_000
const busiestMax = 10

/** Reads what waits, and what stops it. */
export async function readBacklog(sql: Sql): Promise<Backlog> {
  const first = await sql.run<Group>('operations/sample_waiting_jobs', [countedMax + 1, 100])
  const isExact = sum(first.map(({ n }) => n)) <= countedMax
  const classes = isExact ? [] : await sql.run<ClassRow>('operations/read_waiting_classes', [classesMax])
  const groups = isExact ? first : await sampled(sql, first, sum(classes.map(({ n }) => n)))
  const rates = await sql.run<Rate>('operations/read_rates')
  const all = merged(groups, classes, isExact)
  const obstacles = await obstaclesOf(sql, all)
  const total = sum(all.map(({ waiting }) => waiting))
  const scale = isExact ? 1 : total / sum(groups.map(({ n }) => n))
  const stops = await stopsOf(sql, groups, scale)
  const rate = (what: Rate['kind'], { task, queue }: Merged) =>
    rates.find(({ kind, name, queue: at }) => kind === what && name === task && at === queue) ?? { n: 0, lately: 0 }
  const jobs = all.map((one, i): WaitingJobs => {
    const { task, queue, waiting, oldestMs } = one
    const found = obstacles[i] as Obstacles
    const own = groups.filter((group) => group.task === task && group.queue === queue)
    const part = isExact ? 1 : waiting / Math.max(1, sum(own.map(({ n }) => n)))
    const missing = withoutWorker(one, found)
    const [ended, sent] = [rate('task', one), rate('sent', one)]
    return {
      task,
      queue,
      waiting,
      oldestAt: dateOf(oldestMs),
      perMinute: ended.n,
      sentPerMinute: sent.n,
      growthPerMinute: growthOf(sent, ended),
      currently: found.currently ?? undefined,
      isAbandoned: found.able === 0 && found.live > 0,
      stops: [...gatesOf(found, waiting), ...(missing === undefined ? [] : [missing]), ...limitStops(own, stops, part)],
    }
  })
  return { jobs, limits: limitsOf(groups, stops, rates, scale), isExact }
}

/** Returns about ten thousand of `total` jobs, whose proportions are those of all, by groups. `first`: those that come first. */
async function sampled(sql: Sql, first: Group[], total: number): Promise<Group[]> {
  const percent = Math.min(100, (100 * countedMax) / total)
  const groups = await sql.run<Group>('operations/sample_waiting_jobs', [2 * countedMax, percent])
  if (groups.length === 0) return first
  const keyed = (group: Group) => JSON.stringify([group.task, group.queue, group.buckets])
  const known = new Map(groups.map((group) => [keyed(group), group]))
  // Small groups may be on no page that was read.
  for (const one of first) {
    const same = known.get(keyed(one))
    if (same === undefined) groups.push({ ...one, n: 1 })
    else same.oldest_ms = Math.min(same.oldest_ms, one.oldest_ms)
  }
  return groups
}

type Counts = Pick<Rate, 'n' | 'lately'>

/** See `growthPerMinute`. */
function growthOf(sent: Counts, ended: Counts): number {
  const [came, went] = [sent.lately ?? 0, ended.lately ?? 0]
  // Numbers of independent events vary by their square root.
  const isEmptying = went - came > 2 * Math.sqrt(went + came)
  return isEmptying ? (came - went) * 6 : sent.n - ended.n
}

type Merged = { task: string; queue: string; waiting: number; oldestMs: number | null; labels: string }

/** Joins what was counted and what the bookkeeping of claims has, one entry for each task and queue. */
function merged(groups: readonly Group[], classes: readonly ClassRow[], isExact: boolean): Merged[] {
  const all = new Map<string, Merged>()
  const at = (task: string, queue: string) => {
    const key = `${task}\n${queue}`
    const known = all.get(key) ?? { task, queue, waiting: 0, oldestMs: null, labels: '' }
    all.set(key, known)
    return known
  }
  const earlier = (a: number | null, b: number | null) => (a === null ? b : b === null ? a : Math.min(a, b))
  for (const { task, queue, buckets, n, oldest_ms: oldestMs } of groups) {
    const one = at(task, queue)
    one.oldestMs = earlier(one.oldestMs, oldestMs)
    if (isExact) one.waiting += n
    const labels = (buckets ?? []).flatMap((bucket) => /^[^:*]+@(.+)$/.exec(bucket)?.[1] ?? [])
    one.labels = [...new Set([...one.labels.split(','), ...labels])].filter((label) => label !== '').join(',')
  }
  for (const { task, queue, n, oldest_ms: oldestMs } of classes) {
    const one = at(task, queue)
    one.waiting += n
    one.oldestMs = earlier(one.oldestMs, oldestMs)
  }
  return [...all.values()].filter(({ waiting }) => waiting > 0).sort((a, b) => b.waiting - a.waiting)
}

async function obstaclesOf(sql: Sql, all: readonly Merged[]): Promise<Obstacles[]> {
  if (all.length === 0) return []
  const columns = [all.map(({ task }) => task), all.map(({ queue }) => queue), all.map(({ labels }) => labels)]
  return sql.run<Obstacles>('operations/read_obstacles', columns)
}

function gatesOf({ gates }: Obstacles, jobs: number): Stop[] {
  return (gates ?? []).map(({ gate, reason, by, untilMs }): Stop => {
    const [, what = ''] = /^pause:(queue|task)/.exec(gate) ?? []
    if (untilMs === null) return { kind: 'paused', text: `${what || gate} paused by ${by}: ${reason}`, jobs }
    return {
      kind: 'closed',
      text: `closed by ${gate.replace(/^rule:([^#]*).*$/, 'rule $1')}`,
      jobs,
      until: new Date(untilMs),
    }
  })
}

/** Returns what keeps every worker from the jobs. */
function withoutWorker({ queue, labels, waiting: jobs }: Merged, found: Obstacles): Stop | undefined {
  if (found.slots > 0) return undefined
  if (found.able > 0) return { kind: 'no-worker', text: 'its workers have no slots now', jobs }
  if (found.live === 0) return { kind: 'no-worker', text: 'no worker is running', jobs }
  if (found.both > 0) return { kind: 'no-label', text: `no worker has the label ${labels}`, jobs }
  if (found.knowing === 0) return { kind: 'no-task', text: 'no worker knows the task', jobs }
  if (found.serving === 0) return { kind: 'no-queue', text: `no worker serves queue ${queue}`, jobs }
  return { kind: 'no-worker', text: `no worker that knows the task serves queue ${queue}`, jobs }
}

/** The jobs that wait for one bucket. */
interface Way {
  way: string
  jobs: number
  oldestMs: number
}

function limitsOf(
  groups: readonly Group[],
  stops: ReadonlyMap<string, Stop>,
  rates: readonly Rate[],
  scale: number,
): LimitLoad[] {
  const all = new Map<string, Map<string, Way>>()
  for (const { buckets, n, oldest_ms: oldestMs } of groups)
    for (const way of buckets ?? []) {
      const name = limitOf(way)
      // Beside a limit with a share jobs need a second bucket, of their part.
      if (way.startsWith(`${name}/`)) continue
      const ways = all.get(name) ?? new Map<string, Way>()
      const known = ways.get(way) ?? { way, jobs: 0, oldestMs }
      ways.set(way, { way, jobs: known.jobs + n * scale, oldestMs: Math.min(known.oldestMs, oldestMs) })
      all.set(name, ways)
    }
  const found = sumStops(stopsOfGroups(groups, stops, scale))
  return [...all]
    .map(([limit, byTake]): LimitLoad => {
      const ways = [...byTake.values()].sort((a, b) => b.jobs - a.jobs)
      const rate = rates.find(({ kind, name }) => kind === 'limit' && name === limit)
      return {
        limit,
        waiting: Math.round(sum(ways.map(({ jobs }) => jobs))),
        keys: ways.length,
        busiestKeys: ways
          .filter(({ way }) => way.includes(':'))
          .slice(0, busiestMax)
          .map(({ way, jobs, oldestMs }) => ({
            key: keyOf(way),
            waiting: Math.round(jobs),
            oldestAt: dateOf(oldestMs),
            stop: stops.get(way),
          })),
        oldestAt: dateOf(Math.min(...ways.map(({ oldestMs }) => oldestMs))),
        perMinute: rate === undefined ? 0 : Math.round((rate.n * 60_000) / Math.max(1, rate.span_ms ?? 60_000)),
        ...(rate === undefined || rate.currency === null ? {} : { currency: rate.currency }),
        stops: found.filter(({ limit: of }) => of === limit).map(({ stop }) => stop),
      }
    })
    .sort((a, b) => b.waiting - a.waiting)
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((all, one) => all + one, 0)
}

function dateOf(ms: number | null): Date | undefined {
  return ms === null ? undefined : new Date(ms)
}
