// Runs one server for the process that forked it, and outlives that process just long enough to clean up: when the
// channel closes, because the parent ended or was killed with -9, it kills the server and removes its directory.
// Usage: fork(watchdog.mjs, [directory to remove]); then send { run } or { signal }, and receive { pid } and { exited }.
import { spawn } from 'node:child_process'
import { openSync, rmSync } from 'node:fs'

const directory = process.argv[2]
let server
let ending = false

process.on('message', ({ run, signal }) => (run ? start(run) : server?.kill(signal)))
process.on('disconnect', end)
process.on('SIGTERM', end)

/** `run` is { file, args, cwd, log, endSignal, uid?, gid? }; what the server prints goes to the file `log`. */
function start({ file, args, log, endSignal, ...options }) {
  const output = openSync(log, 'a')
  server = spawn(file, args, { ...options, stdio: ['ignore', output, output] })
  server.endSignal = endSignal
  server.once('spawn', () => tell({ pid: server?.pid }))
  server.once('error', (error) => exited(error.message))
  server.once('exit', (code, signal) => exited(signal ?? `code ${code}`))
}

function exited(how) {
  server = undefined
  if (ending) finish()
  else tell({ exited: how })
}

function end() {
  if (ending) return
  ending = true
  if (server === undefined) return finish()
  server.kill(server.endSignal)
  // Otherwise a server that does not end within 10 s would stay for ever.
  setTimeout(() => server?.kill('SIGKILL'), 10_000)
}

function finish() {
  if (directory) rmSync(directory, { recursive: true, force: true })
  process.exit(0)
}

function tell(message) {
  if (process.connected) process.send(message, () => {})
}
