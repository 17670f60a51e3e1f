/** Callers that wait for a condition. Code that changes the state behind a condition makes them check it again. */

/** A list of waiting callers. */
export class Waiters {
  readonly #checks = new Set<() => void>()

  /** Resolves when `isTrue` returns true, or `signal` is aborted. */
  waitUntil(isTrue: () => boolean, signal?: AbortSignal): Promise<void> {
    if (isTrue() || signal?.aborted) return Promise.resolve()
    return new Promise((resolve) => {
      const look = () => {
        if (!isTrue() && !signal?.aborted) return
        this.#checks.delete(look)
        signal?.removeEventListener('abort', look)
        resolve()
      }
      this.#checks.add(look)
      signal?.addEventListener('abort', look)
    })
  }

  /** Makes all callers check their conditions again. */
  readonly recheck = (): void => {
    for (const look of this.#checks) look()
  }
}
