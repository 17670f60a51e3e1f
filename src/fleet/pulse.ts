/**
 * The heartbeat's thread: beats through a connection of its own while the worker's rounds do not, so that a handler which
 * blocks the event loop does not make the fleet take its jobs away. Started by heartbeat.ts; told the worker's id by message.
 */
import { parentPort, workerData } from 'node:worker_threads'
import pg from 'pg'
import { settle } from '../db/pg.ts'

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
  // Connected all the same, so that nothing but the beat is left to do when the rounds stand still.
  if (seen !== known && client !== undefined) return
  if (client === undefined) {
    const fresh = new pg.Client({
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
      // Sooner than a beat: when the store is back, the others begin to look at us at once.
      return beatMs / 4
    })
    .then((pauseMs) => setTimeout(next, pauseMs))
}
next()
