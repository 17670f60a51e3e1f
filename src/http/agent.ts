/** The connections of a worker. */
import { lookup as resolve } from 'node:dns'
import type { LookupFunction } from 'node:net'
import { Agent, Pool } from 'undici'
import { Guard } from './guard.ts'

type Connect = Exclude<Agent.Options['connect'], Function>

/** Connections that were made only to where a guard lets them. */
export class GuardedAgent extends Agent {
  readonly guard: Guard

  constructor(guard: Guard, connect: Connect) {
    const beneath = ((connect ?? {}) as { lookup?: LookupFunction }).lookup ?? (resolve as LookupFunction)
    super({
      pipelining: 1,
      allowH2: false,
      // For each origin, because a look-up is not told for which port it is.
      factory: (origin, options) =>
        new Pool(origin, {
          ...(options as Pool.Options),
          connect: { timeout: 10_000, ...connect, lookup: guard.lookup(new URL(origin), beneath) },
        }),
    })
    this.guard = guard
  }
}

/**
 * Connections kept alive, one request at a time on each, HTTP/1.1 only, so that "written" and "arrived" mean the same for
 * every request. Connecting may take 10 s. Close them with `agent.close()`.
 * @param guard where they may go; default: to public addresses
 * @param connect how sockets are made; for tests
 */
export function createAgent(guard: Guard = new Guard(), connect: Connect = {}): GuardedAgent {
  return new GuardedAgent(guard, connect)
}

/** The agents of a worker: one for each list of what may be called, for a connection that one task may use another may not. */
export class Agents {
  readonly #always: readonly string[]
  readonly #agents = new Map<string, GuardedAgent>()

  /** @param always what every task may call, as `Guard` takes it. @throws UsageError SLUICE_BAD_OPTION */
  constructor(always: readonly string[]) {
    this.#always = always
    this.of([])
  }

  /** The agent of tasks that may call these as well. */
  of(allow: readonly string[]): GuardedAgent {
    const all = [...new Set([...this.#always, ...allow])].toSorted()
    const key = all.join(' ')
    const agent = this.#agents.get(key) ?? createAgent(new Guard(all))
    this.#agents.set(key, agent)
    return agent
  }

  /** Resolves when the last response has been read. */
  async close(): Promise<void> {
    await Promise.all([...this.#agents.values()].map((agent) => agent.close()))
  }
}
