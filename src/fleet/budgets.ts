/**
 * Budgets: quotas of which a share is used (`alarmAt`). The worker that does the fleet's work sums new ledger rows, which
 * shows what each key has used, and reports each share once in a period.
 */
import type { Clock } from '../core/clock.ts'
import { percent } from '../core/figures.ts'
import { amount } from '../core/money.ts'
import type { Sql, Store } from '../db/store.ts'
import type { SluiceEvents } from '../report/events.ts'

/** A quota that has reached a share, as the store returns it; times in microseconds since 1970. */
interface Reached {
  limit: string
  key: string
  rate: string
  share: number
  starts: number
  ends: number
  used: number
  most: number
  currency: string | null
  /** When `used` was read. */
  at: number
}

/** How often new ledger rows are summed, in ms. */
const sumMs = 15_000
/**
 * How much before the end of the last look the next one begins, in microseconds, because some rows are committed later
 * than newer ones.
 */
const overlapUs = 2_000_000
/** After this time without a look, in ms, another worker has gone on. */
const forgetMs = 60_000
/** The webhook gets at most this many of the budgets that one look finds. */
const firstMax = 20
/** Time for one look, in ms, because the worker also sends heartbeats in its round. */
const lookMs = 500

/** The next step about a budget, for people. */
export const budgetTodo = '`sluice limits usage` shows who used it; `sluice limits set` changes the quota'

/** Sums new ledger rows, and reports the budgets that they reach. */
export class Budgets {
  readonly #store: Store
  readonly #clock: Clock
  readonly #report: (event: SluiceEvents['budget'], isFirst: boolean) => void
  /** Where the last look ended. */
  #until: string | null = null
  #lookedMs = -Infinity
  #isBehind = false

  /** @param report called once for each budget, after it was recorded; `isFirst`: among the first 20 of a look */
  constructor(store: Store, report: (event: SluiceEvents['budget'], isFirst: boolean) => void) {
    this.#store = store
    this.#clock = store.clock
    this.#report = report
  }

  /** Sums new rows now and then. The worker that does the fleet's common work calls it. */
  async check(): Promise<void> {
    const nowMs = this.#clock.monotonicMs()
    if (nowMs < this.#lookedMs + sumMs && !this.#isBehind) return
    if (nowMs > this.#lookedMs + forgetMs) this.#until = null
    else if (this.#until !== null && !this.#isBehind) this.#until = `${BigInt(this.#until) - BigInt(overlapUs)}`
    this.#lookedMs = nowMs
    let reported = 0
    do {
      const [row] = await this.#store.call<{ until: string; more: boolean; raised: Reached[] | null }>('sum_ledger', [
        this.#until,
      ])
      this.#until = row?.until ?? null
      this.#isBehind = row?.more === true
      for (const one of row?.raised ?? []) this.#report(budgetOf(one), reported++ < firstMax)
    } while (this.#isBehind && this.#clock.monotonicMs() < nowMs + lookMs)
  }
}

/** Reads the budgets that are reached now, the first reached first. */
export async function readRaisedBudgets(sql: Sql): Promise<{ event: SluiceEvents['budget']; since: Date }[]> {
  const rows = await sql.run<Reached & { now: number }>('fleet/read_raised_budgets')
  return rows.map((row) => ({ event: budgetOf({ ...row, at: row.now }), since: dateOf(row.at) }))
}

/** Returns a budget as an event, with the time at which it will be used up at the average speed of its period. */
function budgetOf(reached: Reached): SluiceEvents['budget'] {
  const { limit, key, rate, share, starts, ends, used, most, currency, at } = reached
  const upUs = used >= most ? undefined : starts + (Math.max(0, at - starts) * most) / used
  const usedUpAt = upUs === undefined || upUs >= ends ? undefined : dateOf(upUs)
  const until = dateOf(ends)
  const whose = key === '' ? limit : `${limit} for ${key}`
  const text =
    used >= most
      ? `limit ${whose} has used up its quota of ${rate}; it has room again at ${until.toISOString()}`
      : `limit ${whose} has used ${amount(used, currency)} of its quota of ${rate} (${percent(Math.floor((used * 100) / most) / 100)}): ${
          usedUpAt === undefined
            ? `at this pace it lasts until the period ends, at ${until.toISOString()}`
            : `at this pace used up by ${usedUpAt.toISOString()}`
        }`
  return {
    limit,
    key: key === '' ? undefined : key,
    quota: rate,
    share,
    used,
    most,
    currency: currency ?? undefined,
    from: dateOf(starts),
    until,
    usedUpAt,
    text,
  }
}

function dateOf(us: number): Date {
  return new Date(us / 1_000)
}
