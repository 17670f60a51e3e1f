/** Keys are what customers give: whatever characters they have, each key has its own bucket, and all commands find it. */
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import { requestGrants } from '../../src/claim/peer-grants.ts'
import { systemClock } from '../../src/core/clock.ts'
import { limit } from '../../src/limits/limit.ts'
import type { PeerLimiter } from '../../src/limits/peer.ts'
import { task } from '../../src/tasks/task.ts'
import { forAllInTime } from '../for-all.ts'
import { cases, isLong } from '../long.ts'
import { claimAll, count, done, emptied, mainEngines } from './engine.ts'
import '../property.ts'
import { jobsLeft } from '../store/engine.ts'

/** Separators of names, patterns, arrays and texts; control characters, and characters of several bytes. */
const odd = [
  ...'a b 1 3 : * @ / _ % . , { } " \' \\ -'.split(' '),
  ' ',
  '\n',
  '\t',
  '\u0001',
  '\u001d',
  '\u001e',
  '\u007f',
  'é',
  '😀',
  '\ufeff',
  '\u202e',
]
const anyKey = fc.array(fc.constantFrom(...odd), { minLength: 1, maxLength: 5 }).map((all) => all.join(''))
const anyKeys = fc.uniqueArray(fc.oneof(anyKey, anyKey, fc.constantFrom('a', 'a\u001e3', '*', 'a\u001d')), {
  minLength: 2,
  maxLength: 4,
})
const input = z.object({ tenant: z.string(), n: z.number() })
type Input = z.infer<typeof input>
const byTenant = ({ tenant }: Input) => tenant
let runs = 0

describe.each(mainEngines)('keys with odd characters on $name', (engine) => {
  const at = emptied(engine)
  const keysOf = (jobs: readonly { input: unknown }[]) => jobs.map((job) => (job.input as Input).tenant).toSorted()

  it(
    'have buckets of their own in claims, pauses, filters, takes, moves and proofs',
    () =>
      forAllInTime(cases(60), anyKeys, fc.boolean(), fc.boolean(), async (keys, isCosted, isFair) => {
        const { sluice, db, worker } = at
        const name = `odd-${runs++}`
        const own = limit(name, { window: '100/h', concurrency: 1, by: byTenant, weights: { a: 3 } })
        const call = task(name, {
          input,
          limits: [isCosted ? { limit: own, cost: ({ n }: Input) => n } : own],
          ...(isFair ? { fair: 'tenant' as const } : {}),
          run: () => undefined,
        })
        const all = keys.toSorted()
        const [first = '', second = ''] = keys
        const claimed = async () => claimAll(db, worker, [name], 10)
        await sluice.sendMany(
          call,
          [...keys, ...keys].map((tenant) => ({ tenant, n: 2 })),
        )
        for (const key of keys) expect((await sluice.jobs.count({ limit: name, key })).count).toBe(2)
        const running = await claimed()
        expect(keysOf(running)).toEqual(all)
        await sluice.pause({ limit: name, key: first }, { reason: 'odd' })
        expect(await done(db, running)).toEqual([])
        const others = await claimed()
        expect(keysOf(others)).toEqual(all.filter((key) => key !== first))
        expect(await sluice.resume({ limit: name, key: first })).toBe(true)
        const last = await claimed()
        expect(keysOf(last)).toEqual([first])
        expect(await done(db, [...others, ...last])).toEqual([])
        expect(await jobsLeft(db)).toBe(0)
        for (const key of keys) {
          await (await sluice.takes.take(own, { key })).release()
          const [used] = await sluice.limits.usage({ limit: name, key })
          expect(used).toMatchObject({ key, units: isCosted ? 5 : 3 })
        }
        await sluice.send(call, { tenant: first, n: 2 })
        expect(await sluice.limits.rekey(name, { from: first, to: second })).toBe(1)
        const [moved] = await claimed()
        expect((await sluice.jobs.get(moved?.id ?? ''))?.limits).toEqual([`${name}:${second}`])
        expect(await done(db, moved === undefined ? [] : [moved])).toEqual([])
        const proof = await sluice.verify({ limit: name })
        expect(proof).toMatchObject({ isProved: true, buckets: keys.length, exceeded: [], missing: [] })
        expect(
          await count(
            db,
            `sluice.ledger l where l.debt[2] <> 0 and not exists (
            select 1 from sluice.ledger m where m.bucket = l.bucket and (m.at, m.n) > (l.at, l.n))`,
          ),
        ).toBe(0)
      }),
    isLong ? 300_000 : 120_000,
  )

  it('are the same whatever sent the job, if they were cut in the middle of a character', async () => {
    const { sluice, db } = at
    const own = limit('cut', { rate: '100/h', by: ({ tenant }: Input) => tenant.slice(0, 2) })
    const call = task('cut', { input, limits: [own], run: () => undefined })
    const first = await sluice.send(call, { tenant: 'a😀', n: 1 })
    await sluice.dispatchOnce([call])
    const [row] = await db.query<{ id: string }>(`select sluice.send('cut', '{"tenant": "a😀", "n": 1}') as id`)
    // The first claim only finds out which limits the job needs.
    for (let n = 0; n < 2; n++) await sluice.dispatchOnce([call])
    for (const id of [first, row?.id ?? ''])
      expect(await sluice.jobs.get(id)).toMatchObject({ state: 'done', limits: ['cut:a\ufffd'] })
  })
})

it('Redis is asked for the buckets of each job, even if its keys have separators and names of other limits', () => {
  const asked: (readonly string[])[] = []
  const confirm: PeerLimiter['confirm'] = ({ wishes }) => {
    asked.push(...wishes.map(({ buckets }) => buckets))
    return new Promise(() => {})
  }
  const each = [
    ['crm:a\nmail:b', 'sms:c'],
    ['crm:a', 'mail:b\nsms:c'],
  ]
  const jobs = each.map(
    (buckets) => ({ buckets, chargedBuckets: null, costs: null, grantUs: null }) as unknown as ClaimedJob,
  )
  const verdict = { granted() {}, denied() {} }
  requestGrants(jobs, { confirm } as unknown as PeerLimiter, systemClock, verdict)
  expect(asked).toEqual(each)
})
