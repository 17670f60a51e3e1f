/** A server program for tests: in a directory of its own, killed and started at will, gone with this process. */
import { fork } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'

/** A running server. */
export interface Server {
  readonly port: number
  readonly url: string
  /** Undefined while it does not run. */
  readonly pid: number | undefined
  /** Starts it again. */
  start(): Promise<void>
  /** Kills it, as a crash does; with SIGTERM it ends as its administrator would end it. */
  kill(signal?: 'SIGKILL' | 'SIGTERM'): Promise<void>
  /** Ends it for good. */
  close(): Promise<void>
}

/** How to start a server. */
export interface Program {
  /** For messages. */
  name: string
  file: string
  args: readonly string[]
  env?: NodeJS.ProcessEnv
  /** Its directory, which is removed in the end. */
  base: string
  port: number
  url: string
  /** Resolves to true as soon as it serves. */
  isReady(): Promise<boolean>
}

const watchdog = fileURLToPath(new URL('../../scripts/watchdog.mjs', import.meta.url))
const startMaxMs = 120_000

/** Starts a server, and resolves when it serves. */
export async function serve(program: Program): Promise<Server> {
  const { name, file, args, env = process.env, base, port, url } = program
  // A session of its own: signals to our process group must not reach the server before we have ended.
  const child = fork(watchdog, [base], { execArgv: [], detached: true, stdio: 'ignore' })
  child.unref()
  child.channel?.unref()
  let pid: number | undefined
  const state: { ended?: string } = {}
  let isAlive = true
  child.on('message', (told: { pid?: number; exited?: string }) => {
    pid = told.pid
    if (told.exited !== undefined) state.ended = told.exited
  })
  child.once('exit', () => (isAlive = false))
  const log = join(base, 'log')
  const isEnded = () => state.ended !== undefined
  const until = (isTrue: () => boolean | Promise<boolean>) => within(name, isTrue)
  const server: Server = {
    port,
    url,
    get pid() {
      return pid
    },
    async start() {
      delete state.ended
      child.send({ run: { file, args, env, cwd: base, log, endSignal: 'SIGKILL' } })
      await until(async () => isEnded() || (pid !== undefined && (await program.isReady())))
      if (!isEnded()) return
      const told = existsSync(log) ? readFileSync(log, 'utf8').slice(-2000) : ''
      throw new Error(`${name} did not start (${String(state.ended)}). Its log ends with:\n${told}`)
    },
    async kill(signal = 'SIGKILL') {
      child.send({ signal })
      await until(() => pid === undefined)
    },
    async close() {
      if (child.connected) child.disconnect()
      await until(() => !isAlive)
    },
  }
  try {
    await server.start()
    return server
  } catch (error) {
    await server.close()
    throw error
  }
}

/** Between two looks, of which each may be a refused connection, a tenth of the wait so far passes: they cost the server's start. */
async function within(name: string, isTrue: () => boolean | Promise<boolean>): Promise<void> {
  const startMs = performance.now()
  while (!(await isTrue())) {
    const tookMs = performance.now() - startMs
    if (tookMs > startMaxMs) throw new Error(`${name} did not do so within ${startMaxMs} ms.`)
    await sleep(Math.min(5 + tookMs / 10, 100))
  }
}
