import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { atEnd } from '../ends.ts'
import { until } from '../until.ts'
import { brief } from '../v8.ts'

const main = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url))
const oneProcess = fileURLToPath(new URL('one-process.mjs', import.meta.url))
const modules = fileURLToPath(new URL('../../node_modules', import.meta.url))

/** The results of a run of the command line. */
export interface Ran {
  code: number | null
  out: string
  err: string
}

/** A run that goes on. */
export interface Running {
  err(): string
  /** Resolves when stderr contains the text; rejects when the process ended without it. */
  says(text: string): Promise<void>
  signal(name: 'SIGTERM' | 'SIGINT' | 'SIGKILL'): void
  ended: Promise<Ran>
}

/** What a command writes of a file that takes more than 5 s to load, as any may on a busy machine. `Running.err` has it. */
const slowLoad = /^still loading .*\n/gm

/** A directory of a user's project; `run` and `start` run the built command line in it. */
export interface Project {
  dir: string
  write(name: string, text: string): void
  run(args: string[], options?: RunOptions): Promise<Ran>
  /**
   * Runs a command in the process that the file's other such commands use, one after the other, which takes a fifth of the
   * time. For commands that leave nothing there that the next one could meet: they load no tasks and await no signal.
   */
  runWarm(args: readonly string[]): Promise<Ran>
  start(args: string[], options?: RunOptions): Running
  /** Ends the runs that are left and removes the directory. */
  close(): Promise<void>
}

interface RunOptions {
  env?: Record<string, string>
  /** The text on stdin. */
  input?: string
}

/** The environment without the settings of this repository's tests. */
function outerEnv(): NodeJS.ProcessEnv {
  const { DATABASE_URL: _url, SLUICE_LOG_LEVEL: _level, npm_command: _npx, ...outer } = process.env
  return outer
}

/** The process of a file's warm commands. */
class Warm {
  readonly #child
  readonly #answers
  /** The command before. */
  #last: Promise<unknown> = Promise.resolve()

  constructor() {
    this.#child = spawn(process.execPath, [...brief, oneProcess, main], { stdio: ['pipe', 'pipe', 'inherit'] })
    this.#answers = createInterface(this.#child.stdout)[Symbol.asyncIterator]()
  }

  run(args: readonly string[], dir: string, env: NodeJS.ProcessEnv): Promise<Ran> {
    const ran = this.#last.then(async () => {
      this.#child.stdin.write(`${JSON.stringify({ args, dir, env })}\n`)
      const { value, done } = await this.#answers.next()
      if (done) throw new Error(`the process ended in sluice ${args.join(' ')}`)
      return JSON.parse(value) as Ran
    })
    this.#last = ran.catch(() => {})
    return ran
  }

  async close(): Promise<void> {
    const ended = once(this.#child, 'exit')
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return
    this.#child.kill('SIGKILL')
    await ended
  }
}

let warm: Warm | undefined

function warmProcess(): Warm {
  if (warm === undefined) {
    const started = (warm = new Warm())
    atEnd(() => {
      warm = undefined
      return started.close()
    })
  }
  return warm
}

/** Makes a project; `env` holds for all its runs. With `program`, that file is run, and nothing is installed. */
export function createProject(env: Record<string, string> = {}, program?: string): Project {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-cli-'))
  if (program === undefined) symlinkSync(modules, join(dir, 'node_modules'))
  const running = new Set<Running>()
  const start = (args: string[], options: RunOptions = {}): Running => {
    const child = spawn(process.execPath, [...brief, program ?? main, ...args], {
      cwd: dir,
      env: { ...outerEnv(), ...env, ...options.env },
    })
    let [out, err] = ['', '']
    child.stdout.on('data', (chunk) => (out += String(chunk)))
    child.stderr.on('data', (chunk) => (err += String(chunk)))
    // The process may end before it has read everything.
    child.stdin.on('error', () => {}).end(options.input ?? '')
    let isEnded = false
    const ended = new Promise<Ran>((resolve) =>
      child.once('close', (code) => {
        isEnded = true
        resolve({ code, out, err: err.replaceAll(slowLoad, '') })
      }),
    )
    const run: Running = {
      err: () => err,
      async says(text) {
        await until(() => err.includes(text) || isEnded, `"${text}" on stderr`)
        if (!err.includes(text)) throw new Error(`ended with ${child.exitCode} without "${text}": ${err}`)
      },
      signal: (name) => void child.kill(name),
      ended,
    }
    running.add(run)
    void ended.then(() => running.delete(run))
    return run
  }
  return {
    dir,
    write: (name, text) => writeFileSync(join(dir, name), text),
    run: (args, options) => start(args, options).ended,
    runWarm: (args) => warmProcess().run(args, dir, { ...outerEnv(), ...env }),
    start,
    async close() {
      for (const each of running) each.signal('SIGKILL')
      await Promise.all([...running].map((each) => each.ended))
      rmSync(dir, { recursive: true, force: true })
    },
  }
}

/** The lines of NDJSON. */
export function objects(text: string): Record<string, unknown>[] {
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Record<string, unknown>)
}

/** Tasks of each kind that the tests need; `gate` ends when the file `open` is there. */
export const tasksFile = `
import { existsSync } from 'node:fs'
import { limit, task } from 'sluice'
import { z } from 'zod'
const crm = limit('crm', { rate: '100/min', by: 'accountId' })
export const notATask = 5
export const syncContact = task('sync-contact', {
  input: z.object({ accountId: z.string().optional(), note: z.string().optional() }) as never, limits: [crm] as never,
  run: () => 'synced',
})
export const plain = task('plain', { input: z.object({ n: z.number() }), run: ({ n }) => n + 1 })
export const fails = task('fails', {
  input: z.object({}), retry: { attempts: 1 }, run: () => { throw new Error('the vendor said 500') },
})
export const stray = task('stray', { input: z.object({}), run: () => { void Promise.reject(new Error('nobody looks')) } })
export const gate = task('gate', {
  input: z.object({}),
  async run(_, { log }) {
    log.info('begun')
    while (!existsSync('open')) await new Promise((resolve) => setTimeout(resolve, 10))
  },
})
export const stuck = task('stuck', {
  input: z.object({}),
  run: (_, { log, signal }) => new Promise((_resolve, reject) => {
    log.info('begun')
    signal.addEventListener('abort', () => reject(signal.reason))
  }),
})
`
