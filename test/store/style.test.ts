/** Roles that read and write dates in their own format. */
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { shared } from '../../src/cli/shared.ts'
import { newId } from '../../src/core/hash.ts'
import { sqlOn } from '../../src/db/store.ts'
import { limit } from '../../src/limits/limit.ts'
import { schedule } from '../../src/schedule/schedule.ts'
import { Sluice } from '../../src/sluice.ts'
import { quietTask } from '../claim/engine.ts'
import { freshDatabase } from '../servers/database.ts'

describe('a role with a DateStyle, an IntervalStyle and a TimeZone of its own', () => {
  const quiet = quietTask('quiet', [limit('styled', { rate: '1000/s' })])
  let sluice: Sluice
  beforeAll(async () => {
    const { url, adminUrl } = await freshDatabase()
    const client = new pg.Client(adminUrl)
    await client.connect()
    const role = pg.escapeIdentifier(decodeURIComponent(new URL(url).username))
    const database = new URL(url).pathname.slice(1)
    for (const [name, value] of [
      ['DateStyle', 'German, DMY'],
      ['IntervalStyle', 'sql_standard'],
      ['TimeZone', 'Asia/Kathmandu'],
    ])
      await client.query(`alter role ${role} in database ${database} set ${name} = '${value}'`)
    await client.end()
    sluice = await Sluice.open({ store: url })
  })
  afterAll(() => sluice.close())

  const nowMs = async () => {
    const [row] = await sluice.db.query<{ ms: number }>('select extract(epoch from now())::float8 * 1000 as ms')
    return row?.ms as number
  }
  /** A time of some moments ago. */
  const recent = (at: Date | null | undefined, sinceMs: number) => {
    expect(at).toBeInstanceOf(Date)
    expect(at?.getTime()).toBeGreaterThanOrEqual(Math.floor(sinceMs))
    expect(at?.getTime()).toBeLessThanOrEqual(sinceMs + 60_000)
  }

  it('sees the right times of jobs', async () => {
    const { style } =
      (await sluice.db.query<{ style: string }>(`select current_setting('DateStyle') as style`))[0] ?? {}
    expect(style).toBe('German, DMY')
    const sinceMs = await nowMs()
    const later = await sluice.send(quiet, { n: 1 }, { delay: '1h', maxWait: '1h' })
    const job = await sluice.jobs.get(later)
    recent(job?.createdAt, sinceMs)
    recent(job?.dueAt, sinceMs + 3_600_000)
    recent(job?.expiresAt, sinceMs + 7_200_000)
    const id = await sluice.send(quiet, { n: 2 })
    recent((await sluice.jobs.status()).oldestWaitingAt, sinceMs)
    expect(await sluice.dispatchOnce([quiet])).toBe(1)
    const ended = await sluice.jobs.get(id)
    const streamed = []
    for await (const each of sluice.jobs.stream({ state: 'done' })) streamed.push(each)
    expect(streamed).toEqual([ended])
    expect(ended).toMatchObject({ state: 'done', dueAt: null, expiresAt: null })
    for (const at of [ended?.createdAt, ended?.dispatchedAt, ended?.startedAt, ended?.finishedAt]) recent(at, sinceMs)
    const [line] = await sluice.jobs.list({ state: 'done', since: '1h' })
    expect([line?.createdAt, line?.finishedAt]).toEqual([ended?.createdAt, ended?.finishedAt])
    expect(await sluice.jobs.list({ state: 'done', until: new Date(sinceMs) })).toEqual([])
    recent((await sluice.why(later))?.notBefore, sinceMs + 3_600_000)
  })

  it('sees the right times of schedules, pauses and limits', async () => {
    const sinceMs = await nowMs()
    await sluice.pause({ queue: 'shut*' }, { reason: 'to see when' })
    await sluice.pause({ limit: 'styled' }, { reason: 'to see when' })
    const pauses = await sluice.pauses()
    expect(pauses).toHaveLength(2)
    for (const { since } of pauses) recent(since, sinceMs)
    const hourly = schedule('hourly', { every: '1h', task: quiet, input: { n: 1 } })
    const worker = await sluice.work([quiet], { schedules: [hourly] })
    await worker.stop()
    expect(await sluice.schedules.pause('hourly')).toBe(true)
    const [paused] = await sluice.schedules.list()
    recent(paused?.pausedAt, sinceMs)
    recent(paused?.definedAt, sinceMs)
    await sluice.schedules.resume('hourly')
    const [line] = await sluice.schedules.list()
    expect(line?.state).toBe('active')
    expect(line?.next[0]?.getTime()).toBeGreaterThan(sinceMs)
    await sluice.db.query(`insert into sluice.firing values ('hourly', now(), now(), 'sent', $1, now())`, [newId()])
    for (const { at, until } of await sluice.schedules.history('hourly')) {
      recent(at, sinceMs)
      expect(until).toEqual(at)
    }
    recent((await sluice.schedules.list())[0]?.last?.at, sinceMs)
    const [definition] = (await sluice.limits.history('styled')) as { at: Date }[]
    recent(definition?.at, sinceMs - 60_000)
    await sluice.db.query(
      `insert into sluice.shared (owner, epoch, at, away_at, away) values ('a', 'b', now(), now(), 'silent')`,
    )
    expect((await shared({ sql: sqlOn(sluice.db), schema: 'sluice', isEmbedded: false }))?.text).toContain(
      new Date(sinceMs).toISOString().slice(0, 10),
    )
  })
})
