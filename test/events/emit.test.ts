/** One event is emitted by a statement of its own. It does what the one for several does. */
import { beforeAll, afterAll, expect, it } from 'vitest'
import { z } from 'zod'
import { event, limit, newId, on, Sluice } from '../../src/index.ts'
import { freshDatabase } from '../servers/database.ts'
import { fn } from '../servers/fn.ts'

const type = 'demo.same'
const keyed = event(type, z.any())
const nothing = () => undefined
const seat = limit('seat', { concurrency: 1, by: 'account.id' })
const all = limit('all', { rate: '1000/s' })
const services = {
  a: [
    keyed.on(nothing, { name: 'plain' }),
    keyed.on(nothing, { name: 'beside', group: 'plain' }),
    on('demo.#', nothing, { name: 'pattern' }),
    on('demo.*', nothing, { name: 'limited', limits: [seat, all] }),
    on('other.#', nothing, { name: 'other' }),
  ],
  b: [
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
})
afterAll(() => sluice.close())

/** What one event has become, without its own id and what is numbered. */
async function traceOf(id: string, text: string, how: 'one' | 'several', isolation: string) {
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
      `select lane::text, priority, task, queue, takes, raw, due_at, costs, ${own.replace('%s', 'input')} as input,
         id = ${fn}.delivery_id($1, input ->> 'service', input ->> 'handler') as is_own
       from sluice.job where input -> 'event' ->> 'id' = $1::text order by task, input ->> 'handler'`,
      [id],
    )
    const arrivals = await tx.query(
      `select class::text, lane::text, n from sluice.arrival where xid = pg_current_xact_id() order by 1, 2`,
    )
    const emitted = await tx.query(
      `select type, routed, aged, ${own.replace('%s', 'event')} as event from sluice.emitted where id = $1`,
      [id],
    )
    return { told, jobs, arrivals, emitted }
  })
}

it.each(['read committed', 'repeatable read'])(
  'to the same effect for every kind of handler, at %s',
  async (isolation) => {
    for (const data of payloads) {
      const traces: { jobs: unknown[] }[] = []
      for (const how of ['one', 'several'] as const) {
        const id = newId()
        const text = JSON.stringify({ specversion: '1.0', id, source: '/x', type, data })
        traces.push(await traceOf(id, text, how, isolation))
      }
      expect(traces[0]).toEqual(traces[1])
      expect(traces[0]?.jobs.length).toBeGreaterThanOrEqual(6)
    }
  },
)
