/**
 * The heartbeat thread: sends heartbeats through its own connection while the worker's rounds do not, so that a handler
 * which blocks the event loop does not make the fleet take the worker's jobs away. Started by heartbeat.ts, which sends
 * the worker's id by message.
 */
import { parentPort, workerData } from 'node:worker_threads'
import type pg from 'pg'

const { url, sql, beatMs, beats } = workerData as { url: string; sql: string; beatMs: number; beats: Int32Array }
let seen = Atomics.load(beats, 0)
let worker: string | undefined
let client: pg.Client | undefined

parentPort?.on('message', (message: { worker: string | undefined }) => {
  worker = message.worker
})

async function beat(): Promise<void> {
  if (worker === undefined) return
  const beating = worker
  const known = seen
  seen = Atomics.load(beats, 0)
  // The first look connects in any case, so that only the beat remains to be sent when the rounds stand still.
  if (seen !== known && client !== undefined) return
  if (client === undefined) {
    // Here, because a worker that ends before does without it.
    const [{ driver }, { settle }] = await Promise.all([import('../db/driver.ts'), import('../db/pg.ts')])
    const fresh = new driver.Client({
      connectionString: url,
      connectionTimeoutMillis: 3_000,
      query_timeout: 3_000,
      keepAlive: true,
      keepAliveInitialDelayMillis: 5_000,
    })
    fresh.on('error', () => {
      client = undefined
    })
    await fresh.connect()
    client = fresh
    await settle(fresh)
  }
  const { rowCount } = await client.query(sql, [beating])
  if (rowCount === 0 && worker === beating) {
    worker = undefined
    parentPort?.postMessage({ lost: beating })
  }
}

function next(): void {
  void beat()
    .then(() => beatMs)
    .catch(() => {
      void client?.end().catch(() => {})
      client = undefined
      // Retry sooner than a beat: when the store is back, the other workers check this one at once.
      return beatMs / 4
    })
    .then((pauseMs) => setTimeout(next, pauseMs))
}
setTimeout(next, beatMs)
