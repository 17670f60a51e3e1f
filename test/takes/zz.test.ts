/** A limit whose account somebody else uses too, or nobody: minutes of a fleet of two processes, on a clock that the test moves. */
import { beforeAll, describe, expect, it } from 'vitest'
import { hash64, newId } from '../../src/core/hash.ts'
import { type Clock, systemClock } from '../../src/core/clock.ts'
import { storeOn } from '../../src/db/store.ts'
import { defineLimit } from '../../src/claim/definitions/define.ts'
import { type Limit, limit } from '../../src/limits/limit.ts'
import { Sluice } from '../../src/sluice.ts'
import { OthersUse } from '../../src/takes/others.ts'
import { readerOf } from '../../src/vendors/reader.ts'
import { ownClock } from '../claim/engine.ts'
import { freshDatabase } from '../servers/database.ts'
import { fn } from '../servers/fn.ts'
import { isLong } from '../long.ts'
import { Account, type Way } from '../vendors/account.ts'

/** Returns whole numbers below what it is given, the same for the same seed. */
function random(seed: number): (below: number) => number {
  let state = seed
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
}

const stepMs = 500
const minute = 60_000
/** The first windows are not counted: the account was not watched before. */
const warmUp = 1
const windows = isLong ? 8 : 2

interface Seen {
  /** In each of the account's windows: calls of ours and of the other client's that it accepted, and refusals of ours. */
  readonly windows: { ours: number; others: number; refused: number }[]
  /** Units that buckets were charged for others. */
  charged: number
  ours: number
}

let sluice: Sluice
let clock: { set(ms: number): Promise<void> }
const startMs = 1_800_000_000_000
let nowMs = 0
beforeAll(async () => {
  sluice = await Sluice.open({ store: (await freshDatabase()).url })
  clock = await ownClock(sluice.db, startMs)
  // Grants all that is free, as a claim does.
  await sluice.db.query(
    `create function sluice.test_grant(p_bucket bigint, p_id uuid) returns bigint language plpgsql as $$
     declare r ${fn}.room;
     begin
       select * into r from ${fn}.bucket_room(array[p_bucket], sluice.now_us());
       if r.avail > 0 then perform ${fn}.append_ledger(array[r], p_id, array[r.avail], array[r.avail]); end if;
       return r.avail;
     end $$`,
  )
  return () => sluice.close()
})

/** Plays some minutes of saturated demand. @param othersPart of the account, which another client takes at random times */
async function play(of: Limit, way: Way, othersPart: number, seed: number): Promise<Seen> {
  const { db } = sluice
  const bucket = hash64(of.name)
  await defineLimit(storeOn(db), of)
  await db.query(`insert into sluice.bucket (id, name, key) values ($1, $2, '')`, [bucket, of.name])
  const account = new Account(way, 100)
  const reader = readerOf([of.answers])
  const own: Clock = { ...systemClock, monotonicMs: () => nowMs, bootMs: () => nowMs, wallMs: () => nowMs }
  let comparing: Promise<unknown> = Promise.resolve()
  const store = storeOn(db, { clock: own })
  const waited = {
    ...store,
    call: (...call: Parameters<typeof store.call>) => (comparing = store.call(...call)) as never,
  }
  const fleet = [new OthersUse(waited), new OthersUse(waited)]
  const seen: Seen = { windows: [], charged: 0, ours: 0 }
  const at = (ms: number) => (seen.windows[account.windowOf(ms) + 1] ??= { ours: 0, others: 0, refused: 0 })
  const draw = random(seed)
  let answers: { status: number; headers: Headers }[] = []
  const endMs = (warmUp + windows + 1) * minute
  for (let ms = (nowMs = 0); ms < endMs; ms += stepMs) {
    nowMs = ms
    await clock.set(startMs + ms)
    for (const answer of answers) {
      const { counts, refused } = reader.read(answer)
      fleet[draw(2)]?.saw([of.name], [of], counts, () => null)
      await comparing
      if (refused !== undefined)
        await db.query(`select ${fn}.refuse_buckets($1, '{}', $2, 1000, null, '429')`, [
          [bucket],
          (refused.waitMs ?? 1_000) * 1_000,
        ])
      else await db.query(`select ${fn}.accept_buckets($1, 1000, null) from sluice.refusal limit 1`, [[bucket]])
    }
    const [granted] = await db.query<{ n: string }>('select sluice.test_grant($1, $2) as n', [bucket, newId()])
    const mine = Number(granted?.n ?? 0)
    const others = draw(1_000_000) < (othersPart * 100 * stepMs * 1_000_000) / minute ? 1 : 0
    if (others > 0 && account.call(ms).status === 200) at(ms).others++
    answers = Array.from({ length: mine }, () => account.call(ms))
    for (const { status } of answers) at(ms)[status === 200 ? 'ours' : 'refused']++
    seen.ours += mine
  }
  const [sum] = await db.query<{ units: string }>(
    `select coalesce(sum(units), 0) as units from sluice.ledger where bucket = $1 and cause = 'others'`,
    [bucket],
  )
  seen.charged = Number(sum?.units)
  return seen
}

const counted = ({ windows: all }: Seen) => all.slice(1 + warmUp, 1 + warmUp + windows)

describe('an account that nobody else uses', () => {
  it.each(['fixed window', 'sliding log', 'bucket'] as const)('is not charged, by a %s', async (way) => {
    const rate = limit(`alone-rate-${way[0]}`, { rate: '100/min' })
    const window = limit(`alone-window-${way[0]}`, { window: '100/min' })
    for (const of of isLong ? [rate, window] : [rate]) {
      const seen = await play(of, way, 0, 1)
      console.log('alone', of.name, seen.ours, seen.charged)
      expect(seen.ours).toBeGreaterThan(windows * 85)
      expect(seen.charged / seen.ours).toBeLessThanOrEqual(0.01)
    }
  })
})

describe('an account of which another client takes 30 % at random', () => {
  const seeds = isLong ? [1, 2, 3, 4] : [1]
  const ways: Way[] = isLong ? ['fixed window', 'sliding log', 'bucket'] : ['fixed window', 'sliding log']
  const cases = seeds.flatMap((seed) => ways.map((way) => ({ way, seed })))
  it.each(cases)('refuses at most once a window, and the rest is used: $way, $seed', async ({ way, seed }) => {
    const seen = await play(limit(`shared-${way[0]}${seed}`, { rate: '100/min' }), way, 0.3, seed)
    for (const { refused } of counted(seen)) expect(refused).toBeLessThanOrEqual(1)
    console.log(way, seed, seen.charged, JSON.stringify(counted(seen)))
    const used = counted(seen).reduce((sum, { ours }) => sum + ours, 0)
    const rest = counted(seen).reduce((sum, { others }) => sum + 100 - others, 0)
    expect(used / rest).toBeGreaterThanOrEqual(0.85)
    expect(seen.charged).toBeGreaterThan(0)
  })
})
