/** Opens the store that a text describes: a server, a directory, or memory. */
import path from 'node:path'
import type { Clock } from '../core/clock.ts'
import { SluiceError, UsageError } from '../core/errors.ts'
import type { Db } from './db.ts'
import { connectInfo } from './owner.ts'
import { openPg } from './pg.ts'
import { openPglite } from './pglite.ts'
import { Successor } from './successor.ts'

/** An open store, and how further connections reach it. */
export interface Opened {
  db: Db
  /**
   * A URL with which a thread or another process reaches the same data; undefined for memory and for the owner itself.
   */
  url: string | undefined
  /** The same without the pooler, if there is one: for statements that must not wait for a pooled connection. */
  directUrl: string | undefined
  /** This process owns the embedded data; it may become the owner later, when the owner ends. */
  readonly owner: boolean
  /** True for the embedded engine, here or in its owner's process: one transaction at a time for all clients. */
  embedded: boolean
}

/** Parameters of `openStore`; see the fields. */
export interface StoreOptions {
  /** `postgres://…`, a directory, or `memory:`. */
  store: string
  /** URL for LISTEN if `store` is a pooler; default: `store`. */
  listenUrl?: string
  connections?: number
  /** The schema to which a new store is going to be migrated. Default: none. */
  schema?: string
  clock: Clock
  log?: (message: string) => void
}

/**
 * Opens a store. A directory that another process owns is reached through that process.
 * @throws UsageError SLUICE_BAD_URL, SLUICE_STORE_OWNED (when the owner cannot be reached)
 */
export async function openStore(options: StoreOptions): Promise<Opened> {
  const { clock, connections, listenUrl, schema, log = () => {} } = options
  const store = place(options.store, process.cwd())
  const own = { url: undefined, directUrl: undefined, owner: true, embedded: true }
  const server = { url: store, directUrl: listenUrl ?? store, owner: false, embedded: false }
  if (isServer(store)) return { db: openPg({ url: store, listenUrl: server.directUrl, clock, connections }), ...server }
  const embedded = { clock, schema }
  if (store === 'memory:') return { db: await openPglite(embedded), ...own }
  const served = (url: string): Opened => {
    const successor = new Successor(store, clock, log)
    const db = openPg({ url, successor, clock, connections })
    return {
      db,
      url,
      directUrl: url,
      get owner() {
        return successor.isOwner
      },
      embedded: true,
    }
  }
  const owned = await ownerUrl(store)
  if (owned !== undefined) return served(owned)
  try {
    return { db: await openPglite({ dir: store, log, ...embedded }), ...own }
  } catch (error) {
    // Another process became the owner meanwhile: connect through it.
    const raced = SluiceError.is(error) && error.code === 'SLUICE_STORE_OWNED' ? await ownerUrl(store) : undefined
    if (raced === undefined) throw error
    return served(raced)
  }
}

/** Returns an environment variable; empty counts as not set. */
export function env(name: string): string | undefined {
  return process.env[name] || undefined
}

/**
 * Returns the store as an absolute path or URL: relative directories start at `dir`. A URL with another scheme is
 * rejected, because as a directory it would silently become a new, empty store.
 * @throws UsageError SLUICE_BAD_URL, which never repeats a password
 */
export function place(store: string, dir: string): string {
  if (store === '') throw new UsageError('SLUICE_BAD_URL', 'the store is empty; give postgres://… or a directory')
  if (store === 'memory:' || isServer(store)) return store
  const scheme = /^([a-z][a-z0-9+.-]*):/i.exec(store)?.[1]
  // A single letter is a drive of Windows.
  if (scheme !== undefined && (scheme.length > 1 || store.includes('://'))) {
    throw new UsageError(
      'SLUICE_BAD_URL',
      `a store cannot have a "${scheme}:" URL; it should look like postgres://user:password@host:5432/database, or be a directory`,
    )
  }
  // `postgres//…` lacks its colon.
  if (/^(postgres|postgresql|https?|mysql|redis)\/\//i.test(store))
    throw new UsageError('SLUICE_BAD_URL', 'a store is postgres://user:password@host:5432/database, or a directory')
  return path.resolve(dir, store)
}

function isServer(store: string): boolean {
  return /^postgres(ql)?:\/\//.test(store)
}

async function ownerUrl(dir: string): Promise<string | undefined> {
  const info = await connectInfo(dir)
  if (info === undefined) return undefined
  return `postgres:///${encodeURIComponent(info.database)}?host=${encodeURIComponent(info.host)}&port=${info.port}&user=${encodeURIComponent(info.user)}`
}
