/** One event is emitted by a statement of its own, a short one if its handlers are plain. It does what the one for several does. */
import { beforeAll, afterAll, expect, it } from 'vitest'
import { z } from 'zod'
import { event, label, limit, newId, on, Sluice } from '../../src/index.ts'
import { freshDatabase } from '../servers/database.ts'
import { fn } from '../servers/fn.ts'

const type = 'demo.same'
const keyed = event(type, z.any())
const nothing = () => undefined
const seat = limit('seat', { concurrency: 1, by: 'account.id' })
const all = limit('all', { rate: '1000/s' })
const plain = event('plain.same', z.any())
const host = limit('host', { concurrency: 10, by: label('host') })
const services = {
  a: [
    plain.on(nothing, { name: 'one' }),
    on('plain.*', nothing, { name: 'two' }),
    plain.on(nothing, { name: 'limited-plain', limits: [all] }),
    keyed.on(nothing, { name: 'plain' }),
    keyed.on(nothing, { name: 'beside', group: 'plain' }),
    on('demo.#', nothing, { name: 'pattern' }),
    on('demo.*', nothing, { name: 'limited', limits: [seat, all] }),
    on('other.#', nothing, { name: 'other' }),
  ],
  b: [
    plain.on(nothing, { name: 'three', queue: 'other' }),
    plain.on(nothing, { name: 'labelled', limits: [all, host] }),
    plain.on(nothing, { name: 'keyed', limits: [seat, all] }),
    keyed.on(nothing, { name: 'ordered', order: 'account.id' }),
    keyed.on(nothing, { name: 'second', formerly: ['first'] }),
  ],
}
const payloads = [
  { account: { id: 'a1' } },
  { account: { id: 7 } },
  { account: { id: true } },
  { account: { id: 1.5 } },
  { account: { id: null } },
  { account: { id: 'x'.repeat(600) } },
  { account: { id: '\u001f' } },
  { account: { id: {} } },
  { account: 'x' },
  [],
  null,
  'text with \\ and \n and "',
]

let url: string
let sluice: Sluice
beforeAll(async () => {
  ;({ url } = await freshDatabase())
  const former = await Sluice.open({ store: url, service: 'b' })
  await former.dispatchOnce([keyed.on(nothing, { name: 'first' })])
  await former.close()
  for (const [service, work] of Object.entries(services)) {
    const each = await Sluice.open({ store: url, service })
    await each.dispatchOnce(work)
    await each.close()
  }
  // As an older process that stores the former name again.
  const again = await Sluice.open({ store: url, service: 'b' })
  await again.dispatchOnce([keyed.on(nothing, { name: 'first' })])
  await again.close()
  sluice = await Sluice.open({ store: url })
  // The classes of plain handlers become known.
  await sluice.events.emit(plain, 0)
  for (const [service, work] of Object.entries(services)) {
    const each = await Sluice.open({ store: url, service })
    await each.dispatchOnce(work)
    await each.close()
  }
})
afterAll(() => sluice.close())

/** What one event has become, without its own id and what is numbered. */
async function traceOf(type: string, data: unknown, how: 'one' | 'several', isolation: string) {
  const id = newId()
  const text = JSON.stringify({ specversion: '1.0', id, source: '/x', type, data })
  const [call, args] =
    how === 'one'
      ? [`${fn}.emit_event($1::uuid, $2::text, $3, true)`, [id, type, text]]
      : [`${fn}.emit_events($1::uuid[], $2::text[], $3, true)`, [`{${id}}`, `{${type}}`, text]]
  return sluice.transaction(async (tx) => {
    await tx.query(`set transaction isolation level ${isolation}`)
    const told: unknown[] = []
    for (let times = 0; times < 2; times++) told.push(await tx.query(`select ${call} as n`, args))
    const own = `replace(%s::text, '${id}', 'id')`
    const jobs = await tx.query(
      `select lane::text, priority, task, queue, buckets, raw, due_at, costs, ${own.replace('%s', 'input')} as input,
         id = ${fn}.delivery_id($1, input ->> 'service', input ->> 'handler') as is_own
       from sluice.job where input -> 'event' ->> 'id' = $1::text order by task, input ->> 'handler'`,
      [id],
    )
    const arrivals = await tx.query(
      `select class::text, lane::text, sum(n) as n, min(pos) = (select min(seq) from sluice.job j where j.lane = a.lane
         and j.input -> 'event' ->> 'id' = $1) as is_first, count(*) as parts
       from sluice.arrival a where xid = pg_current_xact_id() group by class, lane order by 1, 2`,
      [id],
    )
    const emitted = await tx.query(
      `select type, routed, aged, ${own.replace('%s', 'event')} as event from sluice.emitted where id = $1`,
      [id],
    )
    return { told, jobs, arrivals, emitted }
  })
}

it.each(['read committed', 'repeatable read'])(
  'one event has the same effect as one of several for every kind of handler, at %s',
  async (isolation) => {
    for (const data of payloads) {
      const one = await traceOf(type, data, 'one', isolation)
      expect(one).toEqual(await traceOf(type, data, 'several', isolation))
      expect(one.jobs.length).toBeGreaterThanOrEqual(6)
    }
  },
)

it.each(['read committed', 'repeatable read'])(
  'one event has the same effect in the short statement, at %s',
  async (isolation) => {
    for (const data of payloads) {
      const one = await traceOf(plain.name, data, 'one', isolation)
      const several = await traceOf(plain.name, data, 'several', isolation)
      // The short statement announces each job by itself.
      expect(one.arrivals.map(({ parts }) => parts)).toContain('2')
      const whole = (trace: typeof one) => ({
        ...trace,
        arrivals: trace.arrivals.map((row) => ({ ...row, parts: '1' })),
      })
      expect(whole(one)).toEqual(whole(several))
      expect(one.jobs).toHaveLength(6)
    }
  },
)

it('one event has the same effect as one of several when nobody handles it', async () => {
  const one = await traceOf('nobody.gets', 1, 'one', 'read committed')
  expect(one).toEqual(await traceOf('nobody.gets', 1, 'several', 'read committed'))
  expect(one.emitted).toMatchObject([{ routed: 0 }])
})
