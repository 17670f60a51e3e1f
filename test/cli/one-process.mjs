// Runs commands of the built command line one after the other in this process, which loads the code once: node one-process.mjs
// dist/cli/main.js. Reads each from a line of stdin, {"args":["status","--json"],"dir","env"}, and prints a line with what it
// wrote and its exit code.
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'

const [, , main] = process.argv
const write = process.stdout.write.bind(process.stdout)
const { argv } = process
class Ended extends Error {}
// Each command listens for signals and failed writes.
for (const emitter of [process, process.stdout]) emitter.setMaxListeners(0)
let n = 0
for await (const line of createInterface(process.stdin)) {
  const said = { code: null, out: '', err: '' }
  const into = (name) => (text, done) => {
    said[name] += String(text)
    if (typeof done === 'function') done()
    return true
  }
  process.stdout.write = into('out')
  process.stderr.write = into('err')
  const { args, dir, env } = JSON.parse(line)
  process.argv = [argv[0], main, ...args]
  process.chdir(dir)
  process.env = env
  process.exitCode = undefined
  process.exit = (code) => {
    said.code ??= code
    throw new Ended()
  }
  // The entry anew, the code that it imports as it is.
  await import(`${pathToFileURL(main).href}?${n++}`).catch((error) => {
    if (!(error instanceof Ended)) throw error
  })
  write(`${JSON.stringify(said)}\n`)
}
