/**
 * Counts a vendor's failures in a row, for the whole fleet, until they open the circuit of a bucket. Nothing is written
 * while requests are served: each process remembers when its last one was, and reports that with its next failure.
 */
import { limitOf } from '../core/bucket.ts'
import { type Moment, readMoment } from '../core/clock.ts'
import { hash64 } from '../core/hash.ts'
import { RecentMap } from '../core/recent-map.ts'
import { perStore, type Store } from '../db/store.ts'
import { apartUs, type Cause, type Count, opening } from '../limits/circuit.ts'

/** The kinds of failures: the vendor does not serve the request, or rejects its credential. */
export type Failing = 'down' | 'credential'

/** A failed request. */
export interface Failed {
  readonly cause: Failing
  /** The buckets of the request, and those of its own key among them. */
  readonly buckets: readonly string[]
  readonly concerned: readonly string[]
  /** The job, or the take. */
  readonly who: string
  /** Failures in a row that open the circuit. */
  readonly least: number
  readonly requestedAt: Moment | undefined
}

/** Scopes of which a process knows when the vendor served it last; the oldest are forgotten. */
const scopesMax = 10_000

/** How long after a failure a process remembers which requests were served, in ms. Failures further apart are not in a row. */
const watchMs = apartUs.credential / 1_000

/**
 * Returns the scopes in which a failure counts: its key, and all keys together, because a vendor that is down also
 * fails many keys with one job each.
 */
function scopesOf(cause: Failing, buckets: readonly string[], concerned: readonly string[]): string[] {
  const own = [cause, ...concerned.toSorted()].join('\u001f')
  const names = buckets.map(limitOf).toSorted()
  const hasKey = concerned.some((bucket) => /[:@]/.test(bucket))
  return cause === 'down' && hasKey ? [own, [cause, ...names].join('\u001f')] : [own]
}

/** Counts the failures of vendors, as one process knows them, in the store. */
export class Circuit {
  readonly #store: Store
  /** When the newest served request was answered, and when its grant was requested, by scope. */
  readonly #served = new RecentMap<string, { receivedMs: number; requestedAt: Moment | undefined }>(scopesMax)
  #failedMs = -Infinity

  constructor(store: Store) {
    this.#store = store
  }

  /** True for a while after a request of this process has failed. Only then served requests are worth remembering. */
  get isWatching(): boolean {
    return this.#store.clock.monotonicMs() - this.#failedMs < watchMs
  }

  /** Remembers that the vendor served a request of these buckets; that shows nothing about the cause `but`. */
  recordServed(
    buckets: readonly string[],
    concerned: readonly string[],
    requestedAt: Moment | undefined,
    but?: Cause,
  ): void {
    if (!this.isWatching) return
    const receivedMs = readMoment(this.#store.clock).monotonicMs
    for (const cause of ['down', 'credential'] as const)
      if (cause !== but)
        for (const scope of scopesOf(cause, buckets, concerned)) this.#served.set(scope, { receivedMs, requestedAt })
  }

  /** Forgets the failures in the store, after the vendor served a request on trial. */
  async endFailures(buckets: readonly string[], concerned: readonly string[], but?: Cause): Promise<void> {
    const causes = (['down', 'credential'] as const).filter((cause) => cause !== but)
    const scopes = causes.flatMap((cause) => scopesOf(cause, buckets, concerned))
    await this.#store.run('limits/ledger/forget_failures', [scopes.map(hash64)])
  }

  /** Counts a failure, and returns what it opens. */
  async recordFailure(failed: Failed, capUs: number | null): Promise<ReturnType<typeof opening>> {
    const { cause, buckets, concerned, who, least, requestedAt } = failed
    const { clock } = this.#store
    this.#failedMs = clock.monotonicMs()
    const [own = '', ...wide] = scopesOf(cause, buckets, concerned)
    const sentMs = requestedAt?.monotonicMs ?? Infinity
    // The vendor has served a request that was sent later.
    if ((this.#served.get(own)?.requestedAt?.monotonicMs ?? -Infinity) > sentMs) return 'none'
    const nowMs = readMoment(clock).monotonicMs
    const fine = [own, ...wide].map((scope) => {
      const servedMs = this.#served.get(scope)?.receivedMs
      return servedMs === undefined ? null : Math.round((nowMs - servedMs) * 1_000)
    })
    const failing = [who, own].slice(0, fine.length).map(hash64)
    const params = [[own, ...wide].map(hash64), failing, fine, apartUs[cause], capUs]
    const [row] = await this.#store.call<{ n: number[]; who: number[] }>('count_failures', params)
    const counts = row?.n.map((n, i): Count => ({ n, who: row.who[i] ?? 0 })) ?? []
    return opening(cause, counts[0] ?? { n: 0, who: 0 }, counts[1], least)
  }
}

/** Returns the circuit of a store: jobs and takes of a process share it. */
export const circuitOf = perStore((store) => new Circuit(store))
