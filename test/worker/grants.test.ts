import { describe, expect, it } from 'vitest'
import { storeOn } from '../../src/db/store.ts'
import { StoreClock, systemClock } from '../../src/core/clock.ts'
import { StoreError } from '../../src/core/errors.ts'
import { newId } from '../../src/core/hash.ts'
import type { Db } from '../../src/db/db.ts'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import type { Grant } from '../../src/http/send-check.ts'
import { StoreGrants } from '../../src/worker/grants.ts'
import { claim, emptied, mainEngines, perTenant, quietTask } from '../claim/engine.ts'

const lifeMs = 100
const never = new AbortController().signal
/** The constant time of the store's clock. */
const now_us = '0'
const id = (grant: Grant | undefined) => (grant as unknown as { id: string }).id

/** Random numbers in [0, 1) from a seed. */
function randomOf(seed: number): () => number {
  let state = seed * 2_654_435_761
  return () => {
    state = (Math.imul(state ^ (state >>> 15), 2_246_822_519) + 0x9e3779b9) >>> 0
    return ((state ^ (state >>> 13)) >>> 0) / 2 ** 32
  }
}

/** The ledger's record of one grant. */
interface Entry {
  askedMs: number
  charged: boolean
  written: boolean
  back: boolean
  lost: boolean
}

/** A ledger behind a bad connection: denies, delays, fails, loses requests and replies, and carries some out much later. */
function badLine(random: () => number) {
  const clock = {
    ...systemClock,
    nowMs: 0,
    random,
    monotonicMs: () => clock.nowMs,
    sleep: async (ms: number) => void (clock.nowMs += ms),
  }
  const entries = new Map<string, Entry>()
  let underWay: (() => void)[] = []
  const carryOut = (grant: Entry, back: string | undefined) => {
    const given = back === undefined ? undefined : entries.get(back)
    if (given !== undefined) {
      expect(given).toMatchObject({ charged: true, written: false, back: false })
      given.back = true
    }
    if (!grant.charged && random() < 0.3)
      return { granted: false, wait_us: String(Math.ceil(random() * 2e5)), now_us, waited_us: '0' }
    grant.charged = true
    return { granted: true, wait_us: '0', now_us, waited_us: '0' }
  }
  const call = async (_name: string, _sql: string, [wants]: [string]) => {
    const [{ id: asked, back }] = JSON.parse(wants) as [{ id: string; back?: string }]
    const fresh = { askedMs: clock.nowMs, charged: false, written: false, back: false, lost: false }
    const grant = entries.get(asked) ?? fresh
    entries.set(asked, grant)
    clock.nowMs += random() * 40
    if (random() < 0.3) {
      for (const late of underWay) late()
      underWay = []
    }
    const fate = random()
    if (fate < 0.1) throw Object.assign(new Error('deadlock'), { code: '40P01' })
    if (fate >= 0.4) return [{ ord: 1, lost: false, ...carryOut(grant, back) }]
    for (const one of [grant, back === undefined ? undefined : entries.get(back)])
      if (one !== undefined) one.lost = true
    if (fate < 0.2) carryOut(grant, back)
    else if (fate < 0.3) underWay.push(() => carryOut(grant, back))
    throw new StoreError('SLUICE_STORE_UNREACHABLE', 'the reply was lost')
  }
  return { clock, entries, db: { call } as unknown as Db }
}

describe('further grants', () => {
  it('over a bad connection are never used late or twice, and no charged grant is forgotten', async () => {
    for (let seed = 1; seed <= 500; seed++) {
      const random = randomOf(seed)
      const { clock, entries, db } = badLine(random)
      const job = { id: newId(), claim: newId(), grantedMs: 0, buckets: ['a'] } as unknown as ClaimedJob
      const grants = new StoreGrants({
        limits: [],
        store: storeOn(db, { clock }),
        storeClock: new StoreClock(),
        job,
        grantMs: lifeMs,
      })
      let unused: Grant | undefined
      for (let n = 0; n < 10; n++) {
        const grant = await grants.take(never, () => {}, unused)
        clock.nowMs += random() * 1.5 * lifeMs
        const entry = entries.get(id(grant)) as Entry
        unused = clock.nowMs >= (grant as Grant).deadlineMs ? grant : undefined
        if (unused !== undefined) continue
        expect(entry, `seed ${seed}`).toMatchObject({ charged: true, written: false, back: false })
        expect(clock.nowMs, `seed ${seed}`).toBeLessThan(entry.askedMs + lifeMs)
        entry.written = true
      }
      const forgotten = [...entries].filter(([of, { charged, written, back, lost }]) => {
        return charged && !written && !back && !lost && of !== (unused && id(unused))
      })
      expect(forgotten, `seed ${seed}`).toEqual([])
    }
  })
})

it('an attempt that waits for a further grant tries every few seconds, because the limit may have been raised', async () => {
  const answers = [
    [1e14, false],
    [1e14, false],
    [7e6, false],
    [2e6, false],
    [0, true],
  ] as const
  let asked = 0
  const call = async () => {
    const [wait, granted] = answers[asked++] ?? answers[4]
    return [{ ord: 1, granted, wait_us: String(wait), now_us, waited_us: '0', lost: false }]
  }
  const sleeps: number[] = []
  const clock = { ...systemClock, sleep: async (ms: number) => void sleeps.push(ms) }
  const job = { id: newId(), claim: newId(), grantedMs: 0, buckets: ['a'] } as unknown as ClaimedJob
  const db = { call } as unknown as Db
  const grants = new StoreGrants({
    limits: [],
    store: storeOn(db, { clock }),
    storeClock: new StoreClock(),
    job,
    grantMs: 60_000,
  })
  await grants.take(never, () => {})
  expect(sleeps).toEqual([5_000, 5_000, 5_000, 2_000])
})

describe.each(mainEngines)('grants of a running job on $name', (engine) => {
  const at = emptied(engine)

  it('are taken, and can be given back without another one', async () => {
    const { sluice, db, worker } = at
    const work = quietTask('work', [perTenant('calls', '10/h', 3)])
    await sluice.send(work, { tenant: 'a' })
    const { jobs } = await claim(db, worker, ['work'], 1)
    const job = { ...jobs[0], buckets: ['calls:a'], grantedMs: systemClock.monotonicMs() } as unknown as ClaimedJob
    const [row] = await db.query<{ buckets: string[] }>('select buckets from sluice.job where id = $1', [job.id])
    const grants = new StoreGrants({
      limits: [],
      store: storeOn(db),
      storeClock: new StoreClock(),
      job: { ...job, ...row },
      grantMs: 60_000,
    })
    const rows = () =>
      db.query('select claim, units::int as units from sluice.ledger where claim <> $1 order by n', [job.claim])
    const grant = await grants.take(never, () => {})
    expect(await rows()).toEqual([{ claim: id(grant), units: 1 }])
    await grants.giveBack(grant as Grant)
    expect(await rows()).toEqual([
      { claim: id(grant), units: 1 },
      { claim: id(grant), units: -1 },
    ])
  })
})
