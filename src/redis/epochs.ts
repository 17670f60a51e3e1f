/**
 * Puts epochs of Redis's state in force. A row in the store names the epoch that counts, and grants of the store carry it.
 * When Redis has lost that state (or is another server that never had it), another epoch first replaces it in the store; from
 * then on nothing is granted under the old one, and what was granted is in the ledger, from which the state in Redis is built
 * again.
 */
import { UsageError } from '../core/errors.ts'
import { newId } from '../core/hash.ts'
import type { Store } from '../db/store.ts'
import { isWindow, lookbackUs } from '../limits/rule.ts'
import type { RedisBucket, Seed } from './definition.ts'
import type { Beginning, Epoch } from './call.ts'
import type { RedisLimiter } from './limiter.ts'
import type { SharedDefinitions } from './definitions.ts'
import { countsUnits, drains } from '../limits/kind.ts'

/** Parameters of `SharedEpochs`; see the fields. */
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
  parts: (number | null)[][] | null
  quota: (number | null)[][] | null
}

/** Ms within which Redis must confirm what the store granted; later it is not used. */
export const confirmMs = 1_000

/** Number of failures after which other processes may begin an epoch. */
const failuresMax = 5

/** Thrown when another process is about to begin the epoch that is missing. */
export class OthersBeginError extends Error {}

/** One process's view of the epochs. */
export class SharedEpochs {
  readonly #options: EpochsOptions
  /** The last epoch that this process put in force. */
  #own: string | null = null
  #current: string | undefined
  /** Number of epochs in a row that this process could not begin. */
  #failures = 0

  constructor(options: EpochsOptions) {
    this.#options = options
  }

  /** The epoch that counts, as far as this process knows. */
  get current(): string | undefined {
    return this.#current
  }

  /**
   * Resolves when Redis has the state that counts; builds it again if necessary.
   * @param forced an epoch whose state is built again, if it still counts, even if Redis seems to have it: Redis's clock has
   * stepped, or it has evicted keys
   * @throws OthersBeginError; UsageError SLUICE_REDIS_OWNED; what Redis and the store throw
   */
  async restore(forced: string | undefined): Promise<void> {
    const { store, definitions } = this.#options
    const row = await definitions.readSharing()
    const inRedis = await this.readEpoch()
    const isHere = row.epoch !== undefined && inRedis.isWhole && inRedis.mine === row.epoch && row.epoch !== forced
    if (isHere && inRedis.stores >= row.stores) {
      this.#current = row.epoch
      return
    }
    // Checked before anything is changed: other processes of this database may be right and this one wrong.
    const isOthers = inRedis.owner !== undefined && inRedis.owner !== row.owner
    if (isOthers && (row.stores === 1 || inRedis.stores === 1)) throw ownedError()
    if (isHere) return this.#join(row, inRedis, row.epoch ?? '')
    const next = newId()
    const [replaced] = await store.call<{ epoch: string; mine: boolean; owner: string }>(
      'replace_redis_epoch',
      // A process that fails again and again lets others try.
      [row.epoch ?? null, next, this.#failures < failuresMax ? this.#own : null],
    )
    if (replaced?.mine !== true) throw new OthersBeginError('another process begins an epoch')
    if (this.#own !== row.epoch) this.#failures = 0
    this.#own = next
    this.#failures++
    // An epoch that another database has begun is whole, unless this database takes part in it and has found otherwise.
    const isJoined = row.stores > 1 && inRedis.isWhole && (forced === undefined || inRedis.mine !== forced)
    if (isJoined) await this.#join({ ...row, owner: replaced.owner }, inRedis, next)
    else {
      // Before the first epoch no definition was published, so nothing was granted here; unless by another database.
      const isFirst = !row.epoch && inRedis.id === undefined && row.stores === 1
      const how = isFirst ? { closeUs: 0, delayUs: 0 } : { delayUs: confirmMs * 1_000 }
      await this.#begin({ epoch: next, owner: replaced.owner, stores: row.stores, instead: inRedis.id, ...how })
    }
    this.#failures = 0
    this.#current = next
  }

  /** Returns the epoch in force in Redis, and this database's part in it. */
  readEpoch(): Promise<Epoch> {
    return this.#options.limiter.readEpoch(this.#options.definitions.sharing?.owner)
  }

  /** Takes part in the epoch of another database, or raises the number of databases that do. */
  async #join(row: { owner: string | undefined; stores: number }, inRedis: Epoch, id: string): Promise<void> {
    const { store, limiter, definitions } = this.#options
    const { mine: instead, id: epoch = '' } = inRedis
    await definitions.readNow()
    // Grants under the id that ends are part of the state already.
    const seeds = instead === undefined ? await this.#readSeeds() : []
    const how = { owner: row.owner ?? '', stores: row.stores, delayUs: confirmMs * 1_000, before: this.#renewalOf(id) }
    const joined = await limiter.join({ id, epoch, instead, seeds, ...how })
    if (joined.isDecided) {
      store.log.info('this database shares limits in Redis with others', { databases: row.stores })
      return
    }
    if (joined.why === 'owned') throw ownedError()
    throw new OthersBeginError(`another epoch is in force in Redis, or a definition has just changed (${joined.why})`)
  }

  /** Begins an epoch, once for each id: after an unknown outcome another id is used, since Redis may have lost its state. */
  async #begin(beginning: Beginning): Promise<void> {
    const { store, limiter } = this.#options
    await this.#options.definitions.publish(true)
    const seeds = await this.#readSeeds()
    const begun = await limiter.begin({ ...beginning, seeds, before: this.#renewalOf(beginning.epoch) })
    if (begun.isDecided) {
      store.log.info('limits in Redis continue from the ledger', { buckets: seeds.length })
      return
    }
    if (begun.why === 'owned') throw ownedError()
    throw new OthersBeginError(`another epoch is in force in Redis (${begun.why})`)
  }

  /** If it takes long, another process may have taken over; if not, others wait again from now on. */
  #renewalOf(epoch: string): () => Promise<void> {
    return async () => {
      const renewed = await this.#options.store.run('limits/redis/renew_redis_epoch', [epoch])
      if (renewed.length === 0) throw new OthersBeginError('another process begins an epoch')
    }
  }

  async #readSeeds(): Promise<Seed[]> {
    const { store, definitions } = this.#options
    const rows = await store.run<SeedRow>('limits/ledger/read_redis_seeds', [null])
    return rows.flatMap(({ take, version, hold_us: holdUs, debt, parts, quota }): Seed[] => {
      const all = definitions.rulesOf(take)
      const bucket = definitions.bucket(take)
      // A definition that was changed a moment ago is read again when the next epoch begins: this epoch does not begin.
      const known = definitions.localVersionOf(take)
      if (bucket !== undefined && known !== undefined && known !== version)
        throw new OthersBeginError('a definition has just changed')
      if (bucket === undefined || all === undefined) return []
      // Use under other rules cannot be converted to Redis's rules, so the bucket is closed for as long as that use may
      // count.
      if (known === undefined) return [closedSeed(bucket)]
      // Places are leased again by those that hold them.
      const isLeased = definitions.isLeased(take)
      const flows = all.flatMap((rule, i) => (isLeased || countsUnits(rule) ? [{ rule, i }] : []))
      return [
        {
          bucket,
          holdUs,
          debt: flows.map(({ rule, i }) => (drains(rule) ? (debt[i] ?? 0) : 0)),
          parts: flows.map(({ rule, i }) => (isWindow(rule) ? (parts?.[i] ?? []).map((units) => units ?? 0) : [])),
          spent: flows.map(({ rule, i }) =>
            rule.quota === undefined ? [] : [...(quota?.[i] ?? []).map((one) => one ?? 0), rule.quota.marginUs],
          ),
        },
      ]
    })
  }
}

function closedSeed(bucket: RedisBucket): Seed {
  const { rules } = bucket
  const [debt, parts] = [rules.map(() => 0), rules.map(() => [])]
  return { bucket, holdUs: Math.max(...rules.map(lookbackUs)), debt, parts, spent: parts }
}

function ownedError(): UsageError {
  return new UsageError(
    'SLUICE_REDIS_OWNED',
    'the keys in this Redis belong to another database, or to as many as share its limits: give this one its own prefix (SLUICE_REDIS_PREFIX), or all of them their number (SLUICE_REDIS_STORES); if the database that had them no longer exists, run `sluice limits redis --stores 1`',
  )
}
