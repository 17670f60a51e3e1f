/** Learns that keys of a Redis were changed, so that nobody has to look again and again (Redis 6 and later: client-side caching). */
import { systemClock } from '../core/clock.ts'
import { listenRedis, type Listening, type RedisConnection } from '../redis/connect.ts'
import { callRedis } from './redis-call.ts'

/** Redis's own channel. */
const channel = '__redis__:invalidate'
/** Between two tries after one that has failed, in ms: Redis may be too old, or not allow it. */
const againMs = 1_000

/** Watches what one connection reads. */
export class RedisWatch {
  readonly #onChange: (key: string) => void
  #listening: Listening | undefined
  #failedMs = -Infinity
  #isClosed = false
  #disarm = () => {}

  /** @param onChange called with a key that was changed after it was read; empty: perhaps all were */
  constructor(onChange: (key: string) => void) {
    this.#onChange = onChange
  }

  /** Begins; while Redis does not allow it, nothing can be watched, and it tries again. */
  async open(url: string): Promise<void> {
    const listening = await listenRedis(url, channel, this.#onChange).catch(() => undefined)
    if (this.#isClosed) listening?.close()
    else if (listening === undefined) this.#disarm = systemClock.after(againMs, () => void this.open(url))
    else this.#listening = listening
  }

  close(): void {
    this.#isClosed = true
    this.#disarm()
    this.#listening?.close()
  }

  /**
   * Has the keys watched that the next command of a connection reads, until one is changed. Resolves to whether they are: not if one of
   * the connections was lost, for example. Each time anew, because Redis forgets it with the connection.
   */
  async watchNext(redis: RedisConnection): Promise<boolean> {
    const id = this.#listening?.id
    if (id === undefined || systemClock.monotonicMs() - this.#failedMs < againMs) return false
    const calls = [
      ['TRACKING', 'ON', 'REDIRECT', id, 'OPTIN'],
      ['CACHING', 'YES'],
    ].map((args) => callRedis(redis, 'CLIENT', args))
    const found = await Promise.allSettled(calls)
    const isWatched = found.every(({ status }) => status === 'fulfilled')
    if (!isWatched) this.#failedMs = systemClock.monotonicMs()
    return isWatched
  }
}
