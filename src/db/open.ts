/** Opens the store that a text names: a server, a directory, or memory. */
import path from 'node:path'
import type { Clock } from '../core/clock.ts'
import { SluiceError } from '../core/errors.ts'
import type { Db } from './db.ts'
import { connectInfo } from './owner.ts'
import { openPg } from './pg.ts'
import { openPglite } from './pglite.ts'

/** A store, and how further connections reach it. */
export interface Store {
  db: Db
  /** A URL by which a thread or another process reaches the same data; undefined for memory and for the owner itself. */
  url: string | undefined
  /** This process owns the embedded data. */
  owner: boolean
}

/** What `openStore` needs. */
export interface StoreOptions {
  /** `postgres://…`, a directory, or `memory:`. */
  store: string
  /** Where LISTEN goes when a pooler stands between; default: `store`. */
  listenUrl?: string
  connections?: number
  clock: Clock
  log?: (message: string) => void
}

/**
 * Opens a store. A directory that another process owns is reached through that process.
 * @throws UsageError SLUICE_BAD_URL, SLUICE_STORE_OWNED (when the owner cannot be reached)
 */
export async function openStore(options: StoreOptions): Promise<Store> {
  const { store, clock, connections, listenUrl, log } = options
  const extra = {
    clock,
    ...(connections === undefined ? {} : { connections }),
    ...(listenUrl === undefined ? {} : { listenUrl }),
  }
  if (/^postgres(ql)?:/.test(store)) return { db: openPg({ url: store, ...extra }), url: store, owner: false }
  if (store === 'memory:') return { db: await openPglite({ clock }), url: undefined, owner: true }
  const dir = path.resolve(store)
  const owned = await ownerUrl(dir)
  if (owned !== undefined) return { db: openPg({ url: owned, ...extra }), url: owned, owner: false }
  try {
    return { db: await openPglite({ dir, clock, ...(log === undefined ? {} : { log }) }), url: undefined, owner: true }
  } catch (error) {
    // Somebody else became the owner in between: then it serves us.
    const raced = SluiceError.is(error) && error.code === 'SLUICE_STORE_OWNED' ? await ownerUrl(dir) : undefined
    if (raced === undefined) throw error
    return { db: openPg({ url: raced, ...extra }), url: raced, owner: false }
  }
}

async function ownerUrl(dir: string): Promise<string | undefined> {
  const info = await connectInfo(dir)
  if (info === undefined) return undefined
  return `postgres:///${encodeURIComponent(info.database)}?host=${encodeURIComponent(info.host)}&port=${info.port}&user=${encodeURIComponent(info.user)}`
}
