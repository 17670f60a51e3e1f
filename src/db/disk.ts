/** The files of PGlite. In a directory fsync reaches the disk, and a new database is complete or does not exist. */
import fs from 'node:fs'
import path from 'node:path'
import { MemoryFS, PGlite } from '@electric-sql/pglite'
import { NodeFS } from '@electric-sql/pglite/nodefs'
import { syncDirectory } from './directory.ts'
import { unpack } from './template.ts'

type Mod = Parameters<NodeFS['init']>[1]
interface Stream {
  nfd: number
  node: { parent: { name: string } }
}
interface Emscripten {
  FS: {
    mkdirTree(path: string): void
    writeFile(path: string, bytes: Uint8Array, options: { canOwn: boolean }): void
    mount(type: unknown, options: { root: string }, at: string): void
    ErrnoError: new (errno: number) => Error
  }
  NODEFS: { stream_ops: { fsync?: (stream: Stream) => number } }
  onRuntimeInitialized?: () => void
}
const ioError = 29

/**
 * NODEFS with a real fsync. PostgreSQL in WASM calls fsync as always; the stock NODEFS reports success and does nothing.
 */
export class SyncedFS extends NodeFS {
  readonly #at: { root: string }
  readonly #final: string
  /** fsyncs (and fdatasyncs) that the host has really done. */
  syncs = 0
  /** The error of a failed fsync; from then on nothing may be acknowledged. */
  failed: unknown

  readonly #started: (mod: unknown) => void

  /** `started` is called with the module before any code of PostgreSQL runs. */
  constructor(final: string, started: (mod: unknown) => void) {
    const fresh = !fs.existsSync(final)
    const root = fresh ? `${final}.new` : final
    if (fresh) fs.rmSync(root, { recursive: true, force: true })
    super(root)
    this.#at = { root }
    this.#final = final
    this.#started = started
  }

  override async init(pglite: PGlite, options: Mod): Promise<{ emscriptenOpts: Mod }> {
    this.pg = pglite
    const mount = (mod: unknown) => {
      const { FS, NODEFS, onRuntimeInitialized: before } = mod as Emscripten
      ;(mod as Emscripten).onRuntimeInitialized = () => {
        before?.()
        this.#started(mod)
      }
      NODEFS.stream_ops.fsync = (stream) => this.#sync(stream, FS.ErrnoError)
      FS.mkdirTree(PGlite.paths.PGDATA)
      FS.mount(NODEFS, this.#at, PGlite.paths.PGDATA)
    }
    return {
      emscriptenOpts: { ...options, preRun: [...((options.preRun as never[] | undefined) ?? []), mount as never] },
    }
  }

  /** Makes the new database from a template, in place of PGlite, whose own way takes three times as long. */
  async fill(tar: Buffer): Promise<void> {
    const at = (name: string) => path.join(this.#at.root, name)
    unpack(tar, {
      directory: (name) => void fs.mkdirSync(at(name), { recursive: true, mode: 0o700 }),
      file: (name, bytes) => fs.writeFileSync(at(name), bytes, { mode: 0o600 }),
    })
    await this.syncToFs()
  }

  /** PGlite calls this when the files of a new database are written and the backend does not use them yet. */
  override async syncToFs(): Promise<void> {
    if (this.#at.root === this.#final) return
    syncTree(this.#at.root)
    fs.renameSync(this.#at.root, this.#final)
    syncDirectory(path.dirname(this.#final))
    this.#at.root = this.#final
  }

  /** False until the files of a new database are on disk, under their final name. */
  get complete(): boolean {
    return this.#at.root === this.#final
  }

  #sync(stream: Stream, Errno: new (errno: number) => Error): number {
    // After a failed fsync the kernel may have dropped the pages, so later successes prove nothing.
    if (this.failed === undefined)
      try {
        // For the log only data and length matter, and PostgreSQL itself uses fdatasync for it on Linux.
        if (stream.node.parent.name === 'pg_wal') fs.fdatasyncSync(stream.nfd)
        else fs.fsyncSync(stream.nfd)
        this.syncs++
        return 0
      } catch (error) {
        this.failed = error
      }
    throw new Errno(ioError)
  }
}

/** A new database in memory, from a template. */
export class FilledFS extends MemoryFS {
  readonly #tar: Buffer

  constructor(tar: Buffer) {
    super()
    this.#tar = tar
  }

  override async init(pglite: PGlite, options: Mod): Promise<{ emscriptenOpts: Mod }> {
    const { emscriptenOpts } = await super.init(pglite, options)
    const fill = ({ FS }: Emscripten) => {
      const at = (name: string) => path.posix.join(PGlite.paths.PGDATA, name)
      unpack(this.#tar, {
        directory: (name) => FS.mkdirTree(at(name)),
        file: (name, bytes) => FS.writeFile(at(name), bytes, { canOwn: true }),
      })
    }
    return {
      emscriptenOpts: { ...emscriptenOpts, preRun: [...((emscriptenOpts.preRun as never[]) ?? []), fill as never] },
    }
  }
}

function syncTree(dir: string): void {
  for (const entry of fs.readdirSync(dir, { withFileTypes: true })) {
    const full = path.join(dir, entry.name)
    if (entry.isDirectory()) syncTree(full)
    else {
      const fd = fs.openSync(full, 'r+')
      fs.fsyncSync(fd)
      fs.closeSync(fd)
    }
  }
  syncDirectory(dir)
}
