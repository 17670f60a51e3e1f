// One server that ends with this process: private port, temporary directory, both removed (scripts/watchdog.mjs).
import { fork } from 'node:child_process'
import { chownSync, existsSync, mkdtempSync, readFileSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { install, isExecutable } from '../../scripts/postgres.mjs'

const watchdog = fileURLToPath(new URL('../../scripts/watchdog.mjs', import.meta.url))

/** Creates a directory for a server, owned by the user that runs it. */
export function directory(name, owner = {}) {
  const base = mkdtempSync(join(tmpdir(), `sluice-bench-${name}-`))
  if (owner.uid !== undefined) chownSync(base, owner.uid, owner.gid)
  return base
}

/** Starts `file` in `base` and waits until `port` accepts connections. Ends, and removes `base`, with this process. */
export async function serve({ file, args, base, port, env = process.env, endSignal = 'SIGKILL', ...owner }) {
  const child = fork(watchdog, [base], { execArgv: [], detached: true, stdio: 'ignore' })
  child.unref()
  child.channel.unref()
  let pid
  let exited
  child.on('message', (told) => {
    pid = told.pid ?? pid
    exited = told.exited ?? exited
  })
  let isAlive = true
  child.once('exit', () => (isAlive = false))
  const log = join(base, 'log')
  child.send({ run: { file, args, cwd: base, log, endSignal, env, ...owner } })
  const sinceMs = performance.now()
  while (!(pid !== undefined && (await accepts(port)))) {
    if (exited !== undefined || performance.now() - sinceMs > 90_000) {
      const text = existsSync(log) ? readFileSync(log, 'utf8').slice(-2000) : ''
      child.disconnect()
      throw new Error(`${file} did not start (${exited ?? 'it does not answer'}). Its log ends with:\n${text}`)
    }
    await sleep(20)
  }
  return {
    pid,
    close: async () => {
      if (child.connected) child.disconnect()
      // Neither the child nor its channel keeps this process alive, and a pending promise does not either.
      while (isAlive) await sleep(5)
    },
  }
}

function accepts(port) {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => {
      socket.destroy()
      resolve(true)
    }).once('error', () => resolve(false))
  })
}

/** Finds a program: in PATH or one of `places`, or there after installing its Debian package. */
export async function program(name, debianPackage, places = []) {
  const find = () =>
    [...places, ...(process.env.PATH ?? '').split(delimiter)]
      .filter((place) => place !== '')
      .map((place) => join(place, name))
      .find(isExecutable)
  const found = find()
  if (found !== undefined) return found
  if (process.getuid?.() === 0 && existsSync('/etc/debian_version')) await install(debianPackage)
  const installed = find()
  if (installed !== undefined) return installed
  throw new Error(
    `No ${name} found, in PATH or ${places.join(', ')}. Install it (Debian: apt-get install ${debianPackage}).`,
  )
}
