// Runs commands of the built command line one after the other in this process, which loads the code once, and prints for each what
// it wrote and its exit code: node one-process.mjs dist/cli/main.js <directory> '[["status","--json"],…]'
import { pathToFileURL } from 'node:url'

const [, , main, dir, commands] = process.argv
process.chdir(dir)
const write = process.stdout.write.bind(process.stdout)
const { argv, exit } = process
class Ended extends Error {}
// Each command listens for signals and failed writes.
for (const emitter of [process, process.stdout]) emitter.setMaxListeners(0)
const ran = []
for (const [n, args] of JSON.parse(commands).entries()) {
  const said = { code: null, out: '', err: '' }
  const into = (name) => (text, done) => {
    said[name] += String(text)
    if (typeof done === 'function') done()
    return true
  }
  process.stdout.write = into('out')
  process.stderr.write = into('err')
  process.argv = [argv[0], main, ...args]
  process.exitCode = undefined
  process.exit = (code) => {
    said.code ??= code
    throw new Ended()
  }
  // The entry anew, the code that it imports as it is.
  await import(`${pathToFileURL(main).href}?${n}`).catch((error) => {
    if (!(error instanceof Ended)) throw error
  })
  ran.push(said)
}
process.stdout.write = write
write(JSON.stringify(ran), () => exit(0))
