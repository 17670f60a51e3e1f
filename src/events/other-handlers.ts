/** The handlers of a service that only its other processes have. */
import type { Log } from '../core/log.ts'

/** Warns of them, once for each list of them. */
export class OtherHandlers {
  readonly #log: Log
  /** Handlers of this process, of all its workers, under all their names. */
  readonly #own = new Set<string>()
  #warned = ''

  constructor(log: Log) {
    this.#log = log
  }

  /** Notes the handlers of a worker of this process. */
  add(handlers: readonly { name: string; formerly: readonly string[] }[]): void {
    for (const { name, formerly } of handlers) for (const each of [name, ...formerly]) this.#own.add(each)
  }

  /** @param known names of handlers that the service has */
  warnOf(service: string, known: readonly string[]): void {
    const others = known.filter((name) => !this.#own.has(name)).join(', ')
    if (others !== '' && others !== this.#warned)
      this.#log.warn(
        `service "${service}" has handlers that this process has not: ${others}; outside of a deploy all processes of a service should have the same, and \`sluice events remove\` ends what is no longer wanted`,
      )
    this.#warned = others
  }
}
