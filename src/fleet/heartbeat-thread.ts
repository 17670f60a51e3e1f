/**
 * The heartbeat thread: sends heartbeats through connections of its own while the workers' rounds do not, so that a handler
 * which blocks the event loop does not make the fleet take the worker's jobs away. Started by heartbeat.ts, which sends
 * the ids of the process's workers by message.
 */
import { parentPort } from 'node:worker_threads'
import type pg from 'pg'
import type { Message } from './heartbeat.ts'

type Start = Extract<Message, { start: unknown }>['start']

/** How often it is checked whether the rounds still beat, in parts of a beat. */
const checksPerBeat = 2
/** After so many checks without a beat of the rounds the thread sends one: rounds come a little later than every beat. */
const quietChecks = 3

/** The heartbeat of one worker. It connects only when the rounds have stopped. */
class Pulse {
  readonly #start: Start
  readonly #lost: (worker: string) => void
  #seen: number
  /** How many checks have found no beat since the last one. */
  #quiet = 0
  #worker: string | undefined
  #client: pg.Client | undefined
  #isOver = false
  #timer: NodeJS.Timeout

  constructor(start: Start, lost: (worker: string) => void) {
    this.#start = start
    this.#lost = lost
    this.#seen = Atomics.load(start.beats, 0)
    this.#timer = setTimeout(() => this.#scheduleCheck(), start.beatMs / checksPerBeat)
  }

  beatFor(worker: string | undefined): void {
    this.#worker = worker
  }

  end(): void {
    this.#isOver = true
    clearTimeout(this.#timer)
    this.#close()
  }

  #scheduleCheck(): void {
    const { beatMs } = this.#start
    void this.#check()
      .then(() => beatMs / checksPerBeat)
      .catch(() => {
        this.#close()
        // Retry sooner: when the store is back, the other workers check this one at once.
        return beatMs / 4
      })
      .then((pauseMs) => {
        if (!this.#isOver) this.#timer = setTimeout(() => this.#scheduleCheck(), pauseMs)
      })
  }

  async #check(): Promise<void> {
    const known = this.#seen
    this.#seen = Atomics.load(this.#start.beats, 0)
    this.#quiet = this.#seen === known ? this.#quiet + 1 : 0
    const worker = this.#worker
    if (worker === undefined || this.#quiet < quietChecks) return
    const client = this.#client ?? (await this.#connect())
    // If it has ended meanwhile, this closes the connection that was just opened.
    if (this.#isOver) return this.#close()
    const { rowCount } = await client.query(this.#start.sql, [worker])
    this.#quiet -= checksPerBeat
    if (rowCount !== 0 || this.#worker !== worker) return
    this.#worker = undefined
    this.#lost(worker)
  }

  async #connect(): Promise<pg.Client> {
    // It is imported here, so that a worker that ends before does not load it.
    const [{ driver }, { settle }] = await Promise.all([import('../db/driver.ts'), import('../db/pool.ts')])
    const fresh = new driver.Client({
      connectionString: this.#start.url,
      connectionTimeoutMillis: 3_000,
      query_timeout: 3_000,
      keepAlive: true,
      keepAliveInitialDelayMillis: 5_000,
    })
    fresh.on('error', () => {
      if (this.#client === fresh) this.#client = undefined
    })
    await fresh.connect()
    this.#client = fresh
    await settle(fresh)
    return fresh
  }

  #close(): void {
    void this.#client?.end().catch(() => {})
    this.#client = undefined
  }
}

const pulses = new Map<number, Pulse>()
parentPort?.on('message', (message: Message) => {
  const { id } = message
  if ('start' in message) pulses.set(id, new Pulse(message.start, (lost) => parentPort?.postMessage({ id, lost })))
  else if ('isOver' in message) {
    pulses.get(id)?.end()
    pulses.delete(id)
  } else pulses.get(id)?.beatFor(message.worker)
})
