/**
 * Which epoch of Redis's state is the one that counts: a row in the store says so, and grants of the store name it. When Redis
 * has lost that state (or is not the one that has it), another epoch takes its place in the store first; then nobody grants
 * under the old one any more, and what was granted is in the ledger, from which the state in Redis is made anew.
 */
import { UsageError } from '../core/errors.ts'
import { newId } from '../core/hash.ts'
import type { Store } from '../db/store.ts'
import type { Seed } from './definition.ts'
import type { Beginning, RedisLimiter } from './limiter.ts'
import type { SharedDefinitions } from './definitions.ts'

/** What epochs need. */
export interface EpochsOptions {
  store: Store
  limiter: RedisLimiter
  definitions: SharedDefinitions
}

interface SeedRow {
  take: string
  version: number
  hold_us: number
  debt: number[]
  slots: (number | null)[][] | null
  quota: (number | null)[][] | null
}

/** What the store granted is asked for in Redis within this, or not used. */
export const askMs = 1_000

/** Then others may begin one. */
const failuresMax = 5

/** Thrown where somebody else is about to begin the epoch that is missing. */
export class OthersBeginError extends Error {}

/** One process's view. */
export class SharedEpochs {
  readonly #options: EpochsOptions
  /** The last one that this process put in force. */
  #own: string | null = null
  #current: string | undefined
  /** Epochs in a row that it could not begin. */
  #failures = 0

  constructor(options: EpochsOptions) {
    this.#options = options
  }

  /** The one that counts, as it was last known. */
  get current(): string | undefined {
    return this.#current
  }

  /**
   * Resolves when Redis has the state that counts, made anew if need be.
   * @param forced also when it seems to have the state of this epoch, if that still counts: its clock has stepped, or it has evicted keys
   * @throws OthersBeginError; UsageError SLUICE_REDIS_OWNED; what Redis and the store throw
   */
  async restore(forced: string | undefined): Promise<void> {
    const { store, limiter } = this.#options
    const [row] = await store.query<{ epoch: string; owner: string }>('select epoch, owner from sluice.shared')
    const stands = await limiter.epoch()
    if (row !== undefined && stands.isWhole && stands.id === row.epoch && row.epoch !== forced) {
      this.#current = row.epoch
      return
    }
    // Before anything is changed: others of this database may be right where this process is wrong.
    if (stands.owner !== undefined && stands.owner !== row?.owner) throw owned()
    const next = newId()
    const [said] = await store.call<{ epoch: string; mine: boolean; owner: string }>(
      'succeed',
      // Who fails again and again lets others try.
      [row?.epoch ?? null, next, this.#failures < failuresMax ? this.#own : null],
    )
    if (said?.mine !== true) throw new OthersBeginError('somebody else begins an epoch')
    if (this.#own !== row?.epoch) this.#failures = 0
    this.#own = next
    this.#failures++
    // Before the first nothing was published, so nobody was granted anything here.
    const isFirst = !row?.epoch && stands.id === undefined
    const how = isFirst ? { closeUs: 0, delayUs: 0 } : { delayUs: askMs * 1_000 }
    await this.#begin({ epoch: next, owner: said.owner, instead: stands.id, ...how })
    this.#failures = 0
    this.#current = next
  }

  /** Once for each id: after an unknown outcome another one is begun, since Redis may have lost its state in between. */
  async #begin(beginning: Beginning): Promise<void> {
    const { store, limiter } = this.#options
    await this.#options.definitions.read()
    for (const published of this.#options.definitions.published()) await limiter.publish(published, true)
    const seeds = await this.#seeds()
    // Where that took long, others may have taken over; if not, from now on they wait again.
    const renewed = await store.run('limits/redis/beginning', [beginning.epoch])
    if (renewed.length === 0) throw new OthersBeginError('somebody else begins an epoch')
    const begun = await limiter.begin({ ...beginning, seeds })
    if (begun.isDecided) {
      store.log.info('limits in Redis go on by the ledger', { buckets: seeds.length })
      return
    }
    if (begun.why === 'owned') throw owned()
    throw new OthersBeginError(`Redis says ${begun.why}`)
  }

  async #seeds(): Promise<Seed[]> {
    const { store, definitions } = this.#options
    const rows = await store.run<SeedRow>('limits/ledger/seeds', [null])
    return rows.flatMap(({ take, version, hold_us: holdUs, debt, slots, quota }): Seed[] => {
      const all = definitions.all(take)
      const bucket = definitions.bucket(take)
      // One that was changed a moment ago is read again when the next epoch is begun: this one is not.
      if (bucket !== undefined && bucket.version !== version)
        throw new OthersBeginError('a definition was just changed')
      if (bucket === undefined || all === undefined) return []
      const flows = all.flatMap((rule, i) => (rule.kind !== 'concurrency' ? [{ rule, i }] : []))
      return [
        {
          bucket,
          holdUs,
          debt: flows.map(({ rule, i }) => (rule.kind === 'rate' ? (debt[i] ?? 0) : 0)),
          slots: flows.map(({ rule, i }) =>
            rule.kind === 'window' ? (slots?.[i] ?? []).map((units) => units ?? 0) : [],
          ),
          spent: flows.map(({ rule, i }) =>
            rule.quota === undefined ? [] : [...(quota?.[i] ?? []).map((one) => one ?? 0), rule.quota.marginUs],
          ),
        },
      ]
    })
  }
}

function owned(): UsageError {
  return new UsageError(
    'SLUICE_REDIS_OWNED',
    'the keys in this Redis are another database’s: give each a prefix of its own (SLUICE_REDIS_PREFIX); if that database is no more, delete the epoch key that docs/redis.md names',
  )
}
