/**
 * Proves from the ledger that no window was exceeded, or reports which was: runs `limits/proof.ts` over all buckets of a
 * store.
 */
import { UsageError } from '../core/errors.ts'
import { checkFields } from '../core/fields.ts'
import { type Duration, durationMs } from '../core/rate.ts'
import type { Sql } from '../db/store.ts'
import { type ClockOffset, setBack } from '../limits/quota-periods.ts'
import { BucketProof, type Defined, type GuaranteeName, lookback, promised } from '../limits/proof.ts'
import { ledgerUs } from '../limits/limit.ts'
import { type Rule, withPaces } from '../limits/rule.ts'

/** Options of `verify`; see the fields. */
export interface VerifyOptions {
  /** Only this limit; default all. */
  limit?: string | undefined
  /**
   * Windows that a grant at this time or later ends; a time, or how long ago (`'2h'`). Default: as far back as the ledger
   * goes.
   */
  since?: Date | Duration | undefined
  /** Only grants before this time; default all. */
  until?: Date | Duration | undefined
}

/** The proof of one rule of a limit, in one version of its definition. */
export interface Verified {
  limit: string
  version: number
  /** The guarantee that was checked; each "0 exceeded" is relative to it. */
  guarantee: GuaranteeName
  /** The rate as it was written. */
  rate: string
  /** At most this many units (for `places`: jobs) ... */
  most: number
  /**
   * ... in every half-open window of this many ms: the vendor's plus the margin; for a quota its shortest period. 0: at
   * every moment.
   */
  windowMs: number
  /** The most units in any such window. */
  worst: number
  /** Windows with too many units, including shorter and longer ones. */
  exceeded: number
  /** Buckets (keys) that were granted units under it. */
  keys: number
}

/** A window with more units than promised. */
export interface Exceeded {
  limit: string
  /** Empty for a limit without keys. */
  key: string
  guarantee: GuaranteeName
  rate: string
  /** The half-open window, by the limiter clock; for `places` a moment; for a quota its period, by the store clock. */
  from: Date
  to: Date
  units: number
  most: number
  /** The first 20 grants in it; `jobs` as far as they are known. */
  grants: { claim: string; at: Date; units: number; jobs: string[] }[]
}

/** Rows of the ledger are missing or misplaced: nothing is proved for that bucket there. */
export interface Missing {
  limit: string
  key: string
  /** Times of the rows before and after the gap. */
  from: Date
  to: Date
}

/** The result of `verify`. */
export interface Verification {
  /** True if no window was exceeded and no row is missing. */
  isProved: boolean
  /**
   * The proof covers all windows that end in this period. For limits that look back longer than 7 days the ledger reaches
   * further.
   */
  from: Date
  to: Date
  buckets: number
  /** Rows of the ledger with grants. */
  grants: number
  /** Units that buckets were charged for what others have used of the vendors' accounts; they are in no window's sum. */
  others: number
  rules: Verified[]
  /** The first 20 buckets and rules that were exceeded, each with its worst window. */
  exceeded: Exceeded[]
  /** The first 20. */
  missing: Missing[]
}

interface Bucket {
  id: string
  name: string
  key: string
  at: string
  n: string
  proof: BucketProof
  /** Returns it as it was before anything was read, with what is kept now. */
  again(): Promise<Bucket>
}

interface Row {
  i: number
  at: string
  n: string
  version: number
  units: number | string
  earlier: number[] | null
  claim: string | null
  debt: number[]
  others: boolean | null
  granted: string | null
}

/** Rows in memory at a time. */
const pageRows = 20_000
const pageBuckets = 200
const shown = 20

const date = (us: number): Date => new Date(Math.floor(us / 1_000))

/**
 * Proves from the ledger alone that no window was exceeded.
 * @throws UsageError SLUICE_NO_SUCH_LIMIT, SLUICE_BAD_OPTION, SLUICE_BAD_DURATION
 */
export async function verify(sql: Sql, options: VerifyOptions = {}): Promise<Verification> {
  checkFields('SLUICE_BAD_OPTION', '`verify`', options, ['limit', 'since', 'until'])
  const audit = new Audit(sql, options.limit)
  const nowUs = await audit.definitions()
  const fromUs = timeUs('since', options.since, nowUs)
  const toUs = timeUs('until', options.until, nowUs)
  if (toUs !== undefined && toUs <= (fromUs ?? nowUs - ledgerUs))
    throw new UsageError('SLUICE_BAD_OPTION', 'the period to verify ends before it begins, or before the ledger does')
  // A bucket's time may be ahead of a clock that stepped back.
  const endUs = toUs ?? Math.max(nowUs, await audit.newestUs()) + 1
  await audit.run(fromUs, endUs, nowUs)
  return audit.answer(fromUs, endUs)
}

function timeUs(name: string, at: Date | Duration | undefined, nowUs: number): number | undefined {
  if (at === undefined) return undefined
  const us = at instanceof Date ? at.getTime() * 1_000 : nowUs - Math.round(durationMs(at) * 1_000)
  if (Number.isFinite(us)) return Math.max(0, us)
  throw new UsageError('SLUICE_BAD_OPTION', `"${name}" is not a valid Date`)
}

/** One run over the ledger. */
class Audit {
  readonly #sql: Sql
  readonly #limit: string | null
  /** The versions of each limit, and of its keys that have definitions of their own (`crm:acme`). */
  readonly #versions = new Map<string, Map<number, Defined>>()
  readonly #verified = new Map<string, Verified>()
  readonly #exceeded: Exceeded[] = []
  readonly #missing: Missing[] = []
  #clockOffset: ClockOffset = { firstUs: 0, steps: [] }
  #isProved = true
  #buckets = 0
  #grants = 0
  #others = 0
  /** What was granted since then is kept. */
  #keptUs = 0

  constructor(sql: Sql, limit: string | undefined) {
    this.#sql = sql
    this.#limit = limit ?? null
  }

  /** Reads all versions of the definitions and the state of the store clock; resolves to the limiter's time. */
  async definitions(): Promise<number> {
    type Read = {
      now: string
      clock_offset_us: string
      name: string | null
      key: string
      version: number
      spec: Defined
    }
    const rows = await this.#sql.query<Read>(
      `select n.*, d.name, d.key, d.version, d.spec
       from (select engine.limiter_now_us() as now, clock_offset_us from sluice.epoch limit 1) n
       left join sluice.limit_def d on d.name = coalesce($1, d.name) and strpos(d.name, '/') = 0 order by d.name, d.version`,
      [this.#limit],
    )
    for (const { name, key, version, spec } of rows) {
      if (name === null) continue
      const of = key === '' ? name : `${name}:${key}`
      // A key has the definitions of all keys until it has its own.
      const versions = this.#versions.get(of) ?? new Map(key === '' ? [] : this.#versions.get(name))
      this.#versions.set(of, versions.set(version, spec))
      for (const { rule, i } of withPaces(spec.rules)) this.#begin(name, version, i, rule, spec)
    }
    if (this.#limit !== null && this.#versions.size === 0)
      throw new UsageError('SLUICE_NO_SUCH_LIMIT', `no limit is called "${this.#limit}"; \`sluice limits\` lists them`)
    const { now, clock_offset_us: offset } = rows[0] as Read
    const steps = await this.#sql.query<Record<'at' | 'before_us' | 'clock_offset_us', string>>(
      'select at, before_us, clock_offset_us from sluice.step order by n',
    )
    this.#clockOffset = {
      firstUs: Number(steps[0]?.before_us ?? offset),
      steps: steps.map((step) => ({ atUs: Number(step.at), clockOffsetUs: Number(step.clock_offset_us) })),
    }
    this.#keptUs = Number(now) - ledgerUs
    return Number(now)
  }

  #begin(limit: string, version: number, i: number, rule: Rule, spec: Defined): void {
    const { guarantee, rate, spanUs, most } = promised(rule, spec)
    const none = { worst: 0, exceeded: 0, keys: 0 }
    const verified = { limit, version, guarantee, rate, most, windowMs: spanUs / 1_000, ...none }
    this.#verified.set(`${limit} ${version}:${i}`, verified)
  }

  async newestUs(): Promise<number> {
    const [row] = await this.#sql.query<{ at: string | null }>('select max(at) as at from sluice.ledger')
    return Number(row?.at ?? 0)
  }

  /** Checks all buckets, some at a time. */
  async run(fromUs: number | undefined, endUs: number, nowUs: number): Promise<void> {
    for (let after = '-9223372036854775808'; ;) {
      const found = await this.#sql.query<{ id: string; name: string; key: string }>(
        'select id, name, key from sluice.bucket where id > $1 and name = coalesce($2, name) order by id limit $3',
        [after, this.#limit, pageBuckets],
      )
      await this.#follow(
        found.flatMap((one) => {
          const versions = this.#versions.get(`${one.name}:${one.key}`) ?? this.#versions.get(one.name)
          return versions === undefined ? [] : [this.#open(one, versions, fromUs, nowUs)]
        }),
        endUs,
      )
      if (found.length < pageBuckets) return
      after = found.at(-1)?.id ?? after
    }
  }

  #open(
    of: Pick<Bucket, 'id' | 'name' | 'key'>,
    versions: ReadonlyMap<number, Defined>,
    fromUs: number | undefined,
    nowUs: number,
  ): Bucket {
    // A period during which the store clock was set back is longer by that amount.
    const backUs = Math.max(...[...versions.values()].map(lookback)) + setBack(this.#clockOffset)
    const keptUs = nowUs - Math.max(ledgerUs, backUs)
    const proof = new BucketProof(versions, Math.max(fromUs ?? keptUs, keptUs), this.#clockOffset)
    const again = async () => {
      const [row] = await this.#sql.query<{ now: string }>('select engine.limiter_now_us() as now')
      this.#keptUs = Number(row?.now) - ledgerUs
      return this.#open(of, versions, fromUs, Number(row?.now))
    }
    return { ...of, at: String(fromUs === undefined ? -1 : fromUs - backUs), n: '0', proof, again }
  }

  /** Reads the ledgers of these buckets to their ends, a page of each at a time. */
  async #follow(buckets: Bucket[], endUs: number): Promise<void> {
    for (let open = buckets; open.length > 0;) {
      const most = Math.ceil(pageRows / open.length)
      const rows = await this.#sql.run<Row>('operations/read_ledger', [
        open.map((one) => one.id),
        open.map((one) => one.at),
        open.map((one) => one.n),
        endUs,
        most,
      ])
      const counts = open.map(() => 0)
      for (const row of rows) {
        const bucket = open[row.i] as Bucket
        counts[row.i] = (counts[row.i] ?? 0) + 1
        ;[bucket.at, bucket.n] = [row.at, row.n]
        bucket.proof.add({
          n: Number(row.n),
          atUs: Number(row.at),
          version: row.version,
          units: Number(row.units),
          earlierUs: row.earlier ?? undefined,
          claim: row.claim,
          debt: row.debt,
          isOthers: row.others === true,
          granted: row.granted === null ? null : Number(row.granted),
        })
      }
      const isOver = (_: Bucket, i: number) => (counts[i] ?? 0) < most
      const left = open.filter((bucket, i) => !isOver(bucket, i))
      for (const bucket of open.filter(isOver))
        if (await this.#isOvertaken(bucket)) left.push(await bucket.again())
        else await this.#close(bucket)
      open = left
    }
  }

  /**
   * Returns whether rows that were no longer kept were deleted before they were read: then the row before the first gap is
   * gone, too.
   */
  async #isOvertaken({ id, proof }: Bucket): Promise<boolean> {
    const [gap] = proof.gaps
    if (gap === undefined) return false
    const { atUs, n } = gap.after
    const params = [id, atUs, n]
    return (
      (await this.#sql.query('select from sluice.ledger where bucket = $1 and at = $2 and n = $3', params)).length === 0
    )
  }

  async #close({ id, name, key, proof }: Bucket): Promise<void> {
    this.#buckets++
    this.#grants += proof.grants
    this.#others += proof.others
    if (proof.gaps.length > 0) this.#isProved = false
    for (const { after, before } of proof.gaps.slice(0, shown - this.#missing.length))
      this.#missing.push({ limit: name, key, from: date(after.atUs), to: date(before.atUs) })
    for (const [of, seen] of proof.seen) {
      const verified = this.#verified.get(`${name} ${of}`) as Verified
      verified.keys++
      verified.exceeded += seen.exceeded
      verified.worst = Math.max(verified.worst, seen.worst)
      if (seen.excess === undefined) continue
      this.#isProved = false
      if (this.#exceeded.length >= shown) continue
      const { fromUs, firstUs, spanUs, lastUs, units, most } = seen.excess
      const { guarantee, rate } = verified
      const window = { from: date(fromUs), to: date(fromUs + spanUs) }
      const grants = await this.#spent(id, firstUs, lastUs)
      this.#exceeded.push({ limit: name, key, guarantee, rate, ...window, units, most, grants })
    }
  }

  async #spent(bucket: string, firstUs: number, lastUs: number): Promise<Exceeded['grants']> {
    const rows = await this.#sql.run<{ claim: string; at: string; units: number | string; jobs: string[] | null }>(
      'operations/read_grants',
      [bucket, firstUs, lastUs],
    )
    return rows.map(({ claim, at, units, jobs }) => ({
      claim,
      at: date(Number(at)),
      units: Number(units),
      jobs: jobs ?? [],
    }))
  }

  answer(fromUs: number | undefined, endUs: number): Verification {
    return {
      isProved: this.#isProved,
      from: date(Math.max(fromUs ?? 0, this.#keptUs)),
      to: date(endUs),
      buckets: this.#buckets,
      grants: this.#grants,
      others: this.#others,
      rules: [...this.#verified.values()],
      exceeded: this.#exceeded,
      missing: this.#missing,
    }
  }
}
