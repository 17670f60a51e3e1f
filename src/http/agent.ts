/** The connections of a worker. */
import { lookup as resolve } from 'node:dns'
import type { LookupFunction } from 'node:net'
import type { Agent, Pool } from 'undici'
import { loadClient } from './client.ts'
import { Guard } from './guard.ts'

type Connect = Exclude<Agent.Options['connect'], Function>

/** Connections that are made only to addresses which a guard allows. */
export interface GuardedAgent extends Agent {
  readonly guard: Guard
}

/**
 * Creates an agent that keeps connections alive, with one request at a time on each, HTTP/1.1 only, so that "written" and
 * "arrived" mean the same for every request. Connecting may take 10 s. Close it with `agent.close()`.
 * @param guard what the connections may reach; default: public addresses
 * @param connect how sockets are made; for tests
 */
export function createAgent(guard: Guard = new Guard(), connect: Connect = {}): GuardedAgent {
  const beneath = ((connect ?? {}) as { lookup?: LookupFunction }).lookup ?? (resolve as LookupFunction)
  const http = loadClient()
  const agent = new http.Agent({
    pipelining: 1,
    allowH2: false,
    // One pool for each origin, because a look-up does not receive the port.
    factory: (origin, options) =>
      new http.Pool(origin, {
        ...(options as Pool.Options),
        connect: { timeout: 10_000, ...connect, lookup: guard.lookup(new URL(origin), beneath) },
      }),
  })
  return Object.assign(agent, { guard })
}

/**
 * The agents of a worker: one for each list of allowed addresses, because a connection that one task may use is forbidden
 * to another.
 */
export class Agents {
  readonly #always: readonly string[]
  readonly #agents = new Map<string, GuardedAgent>()

  /** @param always what every task may call, as `Guard` takes it @throws UsageError SLUICE_BAD_OPTION */
  constructor(always: readonly string[]) {
    this.#always = always
    this.of([])
  }

  /** Returns the agent of tasks that may also call these addresses. */
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
