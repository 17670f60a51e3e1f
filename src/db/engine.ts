/** PGlite with durable commits: one backend behind one mutex, whose commits are on disk when their reply arrives. */
import { PGlite } from '@electric-sql/pglite'
import { StoreError, textOfError } from '../core/errors.ts'
import { FilledFS, SyncedFS } from './disk.ts'
import { frames, query } from './frame.ts'
import { template } from './template.ts'

/** Functions of the running module that are replaced to detect a dead backend. */
interface Backend {
  _PostgresMainLoopOnce(): void
  stackRestore(pointer: number): void
}

const set = (...settings: string[]) => settings.flatMap((setting) => ['-c', setting])
/** The engine fills its buffers with zeros when it starts, so each MB of them is a MB of this process's memory. PostgreSQL's default: 128. */
const buffers = set('shared_buffers=32MB')
const inMemoryParams = [...PGlite.defaultStartParams, ...buffers]
const startParams = [
  ...PGlite.defaultStartParams.filter((flag) => flag !== '-F'),
  ...set('fsync=on', 'synchronous_commit=on', 'full_page_writes=on'),
  // The build's fdatasync never reaches the host; its fsync does, through `SyncedFS`.
  ...set('wal_sync_method=fsync'),
  ...buffers,
]
const errorLoop = 100
const unitsBetweenLooks = 64
const checkpointBytes = 64 * 1024 * 1024

/** Tracks whether the backend still runs. */
class Health {
  stopped: Error | undefined
  #complaint = ''

  /** Remembers PostgreSQL's last message before it stopped. */
  readonly readLine = (line: string): false => {
    if (/FATAL|PANIC/.test(line)) this.#complaint = line
    return false
  }

  /** Returns the reason, in PostgreSQL's words if there are any. */
  reasonOf(error: unknown): string {
    return this.#complaint || textOfError(error)
  }

  /** PGlite retries for ever on a backend that has exited or panicked; throwing from its recovery ends that loop. */
  guard(backend: Backend): void {
    const loop = backend._PostgresMainLoopOnce
    const restore = backend.stackRestore
    backend._PostgresMainLoopOnce = () => {
      const exitCode = process.exitCode
      try {
        loop()
      } catch (error) {
        process.exitCode = exitCode
        if ((error as { status?: number }).status !== errorLoop) this.stopped ??= error as Error
        throw error
      }
    }
    backend.stackRestore = (pointer) => {
      if (this.stopped !== undefined) throw this.stopped
      restore(pointer)
    }
  }
}

/** The one backend. A client takes the turn before it uses it, and keeps the turn while its transaction is open. */
export class Engine {
  readonly #pglite: PGlite
  readonly #disk: SyncedFS | undefined
  #tail: Promise<void> = Promise.resolve()
  readonly #health: Health
  /** Resolves with the reason when the backend has stopped by itself: this engine no longer works. */
  readonly ended: Promise<StoreError>
  #resolveEnd: (error: StoreError) => void = () => {}
  #closing: Promise<void> | undefined
  #units = 0

  private constructor(pglite: PGlite, disk: SyncedFS | undefined, health: Health) {
    this.#pglite = pglite
    this.#disk = disk
    this.#health = health
    this.ended = new Promise((resolve) => (this.#resolveEnd = resolve))
  }

  /**
   * Opens, and creates when missing, the database in the directory `dir`; undefined: in memory. The caller owns the
   * directory. A new one has the schema `schema` already if there is a template with it.
   */
  static async open(dir: string | undefined, schema?: string): Promise<Engine> {
    const health = new Health()
    const disk = dir === undefined ? undefined : new SyncedFS(dir, (mod) => health.guard(mod as Backend))
    const files = disk?.complete === true ? undefined : template(schema)
    if (files !== undefined) await disk?.fill(files)
    const inMemory = files === undefined ? {} : { fs: new FilledFS(files) }
    const options = disk === undefined ? { ...inMemory, startParams: inMemoryParams } : { fs: disk, startParams }
    const pglite = await PGlite.create({ ...options, onStderr: health.readLine }).catch((cause: unknown) => {
      throw new Error(health.reasonOf(cause), { cause })
    })
    if (disk !== undefined && !disk.complete)
      throw new StoreError('SLUICE_STORE_UNREACHABLE', `${dir} could not be created completely; open it again`)
    if (disk === undefined) health.guard(pglite.Module as unknown as Backend)
    const engine = new Engine(pglite, disk, health)
    // The first catalogue changes of a new database are only in the log: a checkpoint makes the start itself durable.
    if (disk !== undefined) await engine.exec(query('checkpoint'))
    return engine
  }

  /** fsyncs that the host has really done for this engine; 0 in memory. For doctor and tests. */
  get syncs(): number {
    return this.#disk?.syncs ?? 0
  }

  /** The reason why the backend has stopped, or undefined. */
  get stopped(): Error | undefined {
    return this.#health.stopped
  }

  /** Waits for the turn, first come first served; resolves to a function that passes it on. */
  async waitForTurn(): Promise<() => void> {
    let pass = () => {}
    const before = this.#tail
    this.#tail = new Promise((resolve) => (pass = resolve))
    await before
    return pass
  }

  /**
   * Sends frontend frames to the backend and returns its reply. Only for the holder of the turn.
   * @throws StoreError SLUICE_STORE_UNREACHABLE when the backend has stopped or stops now.
   */
  async exec(input: Buffer): Promise<Buffer> {
    if (this.#health.stopped !== undefined) throw this.#unreachableError()
    const output: Buffer[] = []
    try {
      await this.#pglite.execProtocolRawStream(input, {
        syncToFs: false,
        onRawData: (bytes) => void output.push(Buffer.from(bytes)),
      })
    } catch (error) {
      this.#health.stopped ??= error as Error
    }
    if (this.#disk?.failed !== undefined) this.#health.stopped ??= this.#disk.failed as Error
    if (this.#health.stopped !== undefined) {
      const error = this.#unreachableError()
      this.#resolveEnd(error)
      throw error
    }
    return output.length === 1 ? output[0]! : Buffer.concat(output)
  }

  /**
   * Checkpoints when the log has grown. Called by the holder of the turn, outside transactions: a single backend has no
   * checkpointer, so its log would grow for ever.
   */
  async checkpointIfGrown(): Promise<void> {
    if (++this.#units % unitsBetweenLooks !== 0) return
    const answer = await this.exec(
      query(
        `select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), redo_lsn) > ${checkpointBytes} from pg_control_checkpoint()`,
      ),
    )
    const row = [...frames(answer)].find((each) => each.type === 'D')
    if (row?.body.at(-1) === 0x74) await this.exec(query('checkpoint'))
  }

  /** Waits for the turn, then shuts down cleanly. */
  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    const pass = await this.waitForTurn()
    // PGlite's runtime sets the exit code of the whole process when it ends.
    const exitCode = process.exitCode
    try {
      if (this.#health.stopped === undefined) await this.#pglite.close()
    } finally {
      process.exitCode = exitCode
      this.#health.stopped ??= new Error('it was closed')
      pass()
    }
  }

  #unreachableError(): StoreError {
    const { stopped } = this.#health
    const failed = this.#disk?.failed
    // PostgreSQL only learns that there was an I/O error; the host knows whether the disk is full.
    const why = failed instanceof Error ? failed.message : this.#health.reasonOf(stopped)
    return new StoreError('SLUICE_STORE_UNREACHABLE', `the embedded engine has stopped (${why}); open it again`, {
      cause: stopped,
    })
  }
}
