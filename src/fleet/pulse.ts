/**
 * The heartbeat thread: sends heartbeats through connections of its own while the workers' rounds do not, so that a handler
 * which blocks the event loop does not make the fleet take the worker's jobs away. Started by heartbeat.ts, which sends
 * the ids of the process's workers by message.
 */
import { parentPort } from 'node:worker_threads'
import type pg from 'pg'
import type { Message } from './heartbeat.ts'

type Start = Extract<Message, { start: unknown }>['start']

/** The heartbeat of one worker. */
class Pulse {
  readonly #start: Start
  readonly #lost: (worker: string) => void
  #seen: number
  #worker: string | undefined
  #client: pg.Client | undefined
  #isOver = false
  #timer: NodeJS.Timeout

  constructor(start: Start, lost: (worker: string) => void) {
    this.#start = start
    this.#lost = lost
    this.#seen = Atomics.load(start.beats, 0)
    this.#timer = setTimeout(() => this.#scheduleBeat(), start.beatMs)
  }

  beatFor(worker: string | undefined): void {
    this.#worker = worker
  }

  end(): void {
    this.#isOver = true
    clearTimeout(this.#timer)
    this.#close()
  }

  #scheduleBeat(): void {
    const { beatMs } = this.#start
    void this.#beat()
      .then(() => beatMs)
      .catch(() => {
        this.#close()
        // Retry sooner than a beat: when the store is back, the other workers check this one at once.
        return beatMs / 4
      })
      .then((pauseMs) => {
        if (!this.#isOver) this.#timer = setTimeout(() => this.#scheduleBeat(), pauseMs)
      })
  }

  async #beat(): Promise<void> {
    const worker = this.#worker
    if (worker === undefined) return
    const known = this.#seen
    this.#seen = Atomics.load(this.#start.beats, 0)
    // The first check always connects, so that only the beat has to be sent when the rounds stop.
    if (this.#seen !== known && this.#client !== undefined) return
    const client = this.#client ?? (await this.#connect())
    // If it has ended meanwhile, this closes the connection that was just opened.
    if (this.#isOver) return this.#close()
    const { rowCount } = await client.query(this.#start.sql, [worker])
    if (rowCount !== 0 || this.#worker !== worker) return
    this.#worker = undefined
    this.#lost(worker)
  }

  async #connect(): Promise<pg.Client> {
    // It is imported here, so that a worker that ends before does not load it.
    const [{ driver }, { settle }] = await Promise.all([import('../db/driver.ts'), import('../db/pg.ts')])
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
