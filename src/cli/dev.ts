/** `sluice dev`: owns the store, and restarts a worker (a child process that connects through it) when a file is saved. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { Command } from 'commander'
import { UsageError } from '../core/errors.ts'
import { env } from '../db/open.ts'
import { loadedFiles, noTasks } from './config.ts'
import type { Output } from './output.ts'
import { givenOptions, nameOf, openSluice, type Settings, settingsOf } from './settings.ts'
import { listenForStop } from './stop.ts'
import { tasksFile, type WorkFlags, workFlags, workOptions } from './work.ts'

/** Editors write a file in several steps; one restart is enough. */
const settleMs = 150
/** How long attempts of the old code may continue; then they are aborted, and the new code tries them again. */
const patienceMs = 3_000

/** `sluice dev`. */
export function devCommand(): Command {
  return workFlags(new Command('dev'))
    .description('run the store and a worker, and restart the worker when a file of it is saved')
    .action(dev)
}

async function dev(file: string | undefined, flags: WorkFlags, command: Command): Promise<void> {
  const settings = await settingsOf(command)
  const { out, store } = settings
  workOptions(settings, flags)
  const tasks = tasksFile(file, flags) ?? env('SLUICE_TASKS')
  if (store === 'memory:')
    throw new UsageError(
      'SLUICE_BAD_URL',
      '`sluice dev` needs a directory or a server, because its worker is a separate process',
    )
  const files = filesOf(settings, tasks)
  // With nothing to run or to watch, saving a file would not help.
  if (files.length === 0) throw noTasks()
  const stop = listenForStop()
  const sluice = await openSluice(settings)
  const restarter = new Restarter(() => startWorker(settings, command, tasks), out)
  try {
    restarter.watch([...files, ...loadedFiles()])
    restarter.start()
    out.talk(`store ${nameOf(settings)} is open; the worker restarts when a file is saved; Ctrl-C ends it`)
    out.hint('`sluice send <task> <json>` and `sluice status`, in another terminal')
    const gone = await Promise.race([stop.first, sluice.ended])
    const stopped = restarter.stop()
    // Without its store the worker has nothing to wait for; the second signal ends it at once.
    if (gone !== undefined) restarter.signal()
    void stop.second.then(() => restarter.signal())
    await stopped
    if (gone !== undefined) throw gone
  } finally {
    await sluice.close()
  }
}

/** Lists the files to watch until the worker has reported which files it loaded, because it may fail before. */
function filesOf({ config }: Settings, tasks: string | undefined): string[] {
  const named = config.fields.tasks
  return [
    ...(config.file === undefined ? [] : [config.file]),
    ...(typeof named === 'string' ? [path.resolve(config.dir, named)] : []),
    ...(tasks === undefined ? [] : [path.resolve(tasks)]),
  ]
}

/** Starts the worker's process. It leads a process group of its own, so that Ctrl-C reaches it only through this process. */
function startWorker(settings: Settings, command: Command, tasks: string | undefined): ChildProcess {
  const main = fileURLToPath(new URL('../cli/main.js', import.meta.url))
  const given: [string, string | undefined][] = [
    ['--schema', settings.schema],
    ['--config', settings.config.file],
    ['--tasks', tasks],
    ['--log-level', settings.logLevel],
    ['--log-format', settings.logFormat],
  ]
  const args = [
    ...given.flatMap(([flag, value]) => (value === undefined ? [] : [flag, value])),
    ...givenOptions(command, '--tasks'),
  ]
  // The URL goes into the environment, because every user of the machine can read a process's arguments.
  const env = {
    ...process.env,
    DATABASE_URL: settings.store,
    ...(settings.listenUrl === undefined ? {} : { SLUICE_LISTEN_URL: settings.listenUrl }),
  }
  return spawn(process.execPath, [main, 'work', '--live', ...args, ...(settings.out.json ? ['--json'] : [])], {
    env,
    detached: process.platform !== 'win32',
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  })
}

/** Keeps one child running, and replaces it when a watched file changes. */
class Restarter {
  readonly #spawn: () => ChildProcess
  readonly #out: Output
  readonly #watched = new Map<string, fs.FSWatcher>()
  readonly #files = new Set<string>()
  #child: ChildProcess | undefined
  #timer: NodeJS.Timeout | undefined
  #turn: Promise<void> = Promise.resolve()
  #isStopping = false
  #isEnding = false

  constructor(spawnChild: () => ChildProcess, out: Output) {
    this.#spawn = spawnChild
    this.#out = out
  }

  /** Watches these files through their directories, because many editors replace a file when they save it. */
  watch(files: readonly string[]): void {
    for (const file of files) {
      this.#files.add(file)
      const dir = path.dirname(file)
      if (this.#watched.has(dir) || !fs.existsSync(dir)) continue
      const watcher = fs.watch(dir, (_, name) => {
        if (name === null || this.#files.has(path.join(dir, name))) this.#scheduleRestart()
      })
      watcher.on('error', (error) => this.#out.log.warn(`${dir} is no longer watched`, { err: error }))
      this.#watched.set(dir, watcher)
    }
  }

  start(): void {
    const child = this.#spawn()
    this.#child = child
    child.on('message', (message) => this.watch((message as { files?: string[] }).files ?? []))
    child.on('error', (error) => {
      this.#out.log.error('the worker did not start', { err: error })
      if (child.pid === undefined) this.#child = undefined
    })
    child.once('exit', (code) => {
      this.#child = undefined
      if (!this.#isEnding) this.#out.talk(`the worker ended (${code ?? 'killed'}); it restarts when a file is saved`)
    })
  }

  /** Signals the child to end; the second signal ends it at once. */
  signal(): void {
    this.#child?.kill('SIGTERM')
  }

  async stop(): Promise<void> {
    this.#isStopping = true
    clearTimeout(this.#timer)
    for (const watcher of this.#watched.values()) watcher.close()
    await this.#turn
    await this.#end()
  }

  #scheduleRestart(): void {
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => {
      this.#turn = this.#turn.then(() => this.#restart())
    }, settleMs)
  }

  async #restart(): Promise<void> {
    if (this.#isStopping) return
    this.#out.talk('a file was saved; the worker restarts')
    const patience = setTimeout(() => this.signal(), patienceMs)
    await this.#end()
    clearTimeout(patience)
    if (!this.#isStopping) this.start()
  }

  async #end(): Promise<void> {
    const child = this.#child
    if (child === undefined) return
    this.#isEnding = true
    const ended = once(child, 'exit')
    child.kill('SIGTERM')
    await ended
    this.#isEnding = false
  }
}
