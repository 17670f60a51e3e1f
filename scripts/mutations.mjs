// Makes each mutation of test/mutations.md alone, and runs the tests that have to fail with it: `npm run mutations [-- number …]`.
// With --check it only sees that each mutation can be made in one place.
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const row =
  /^\| (?<number>\d+) \| `(?<file>[^`]+)` \| `(?<from>[^`]+)` → (?:`(?<to>[^`]+)`|nothing) \| (?<tests>.+) \|$/

/** Reads the table. */
function readMutations() {
  const lines = readFileSync(join(root, 'test/mutations.md'), 'utf8').split('\n')
  return lines
    .filter((line) => /^\| \d+ \|/.test(line))
    .map((line) => {
      const { number, file, from, to = '', tests } = row.exec(line.replaceAll('\\|', '\u0001'))?.groups ?? {}
      if (number === undefined) throw new Error(`test/mutations.md has a row that cannot be read: ${line}`)
      const bar = (text) => text.replaceAll('\u0001', '|')
      const run = [...tests.matchAll(/`([^`]+)`/g)].map(([, name]) => `test/${name}.test.ts`)
      return { number, path: join(root, 'src', file), file, from: bar(from), to: bar(to), tests: run }
    })
}

/** Returns why a mutation cannot be made; undefined: it can. */
function findFault({ path, from, tests }) {
  if (!existsSync(path)) return 'the file is gone'
  const times = readFileSync(path, 'utf8').split(from).length - 1
  if (times !== 1) return `the text is there ${times} times`
  return tests.length === 0 || tests.some((test) => !existsSync(join(root, test))) ? 'its tests are gone' : undefined
}

const run = (command, args) => spawnSync(command, args, { cwd: root, encoding: 'utf8' })

/** Returns true if the tests fail with the mutation, or if the code does not build with it. */
function isKilled({ path, from, to, tests }) {
  const before = readFileSync(path, 'utf8')
  try {
    writeFileSync(
      path,
      before.replace(from, () => to),
    )
    if (run('npm', ['run', 'build']).status !== 0) return true
    return run('npx', ['vitest', 'run', ...tests]).status !== 0
  } finally {
    writeFileSync(path, before)
  }
}

const args = process.argv.slice(2)
const wanted = args.filter((arg) => /^\d+$/.test(arg))
const mutations = readMutations().filter(({ number }) => wanted.length === 0 || wanted.includes(number))
const faults = mutations.flatMap((mutation) => {
  const fault = findFault(mutation)
  return fault === undefined ? [] : [`test/mutations.md, ${mutation.number}, ${mutation.file}: ${fault}`]
})
for (const fault of faults) console.error(fault)
if (faults.length > 0) process.exitCode = 1
else if (!args.includes('--check')) {
  if (run('git', ['status', '--porcelain', 'src']).stdout !== '') throw new Error('commit the changes of src/ first')
  let killed = 0
  for (const mutation of mutations) {
    const isDead = isKilled(mutation)
    if (isDead) killed++
    console.log(`${mutation.number} ${mutation.file}: ${isDead ? 'killed' : 'SURVIVED'}`)
  }
  run('npm', ['run', 'build'])
  console.log(`${killed} of ${mutations.length} killed`)
  if (killed < mutations.length) process.exitCode = 1
}
