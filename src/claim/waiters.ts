/** Callers that wait until something becomes true of a state; whoever changes the state has them check again. */

/** Those who wait. */
export class Waiters {
  readonly #checks = new Set<() => void>()

  /** Resolves when this is true, or `signal` is aborted. */
  when(isTrue: () => boolean, signal?: AbortSignal): Promise<void> {
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

  /** Something has changed that somebody may wait for. */
  readonly look = (): void => {
    for (const look of this.#checks) look()
  }
}
