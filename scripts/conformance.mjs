// Runs the points of conformance with Celery against real servers, with RabbitMQ and Redis as brokers: `npm run conformance:celery`.
// Points 40 and 41 are those of the bus of events (test/bus).
// With --json the last line is {"passed","failed","named"}: numbers of points, and the points that are not covered, or not wholly,
// each with the reason.
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const halves = {
  6: 'not early is asserted; how late depends on the machine and on Celery itself, and is printed',
  17: 'over Redis a topic is what kombu makes of it: patterns of bindings, which only workers of Celery declare',
  18: 'over Redis a queue always exists, so only an exchange without a queue for the message is an error',
  27: 'a message that cannot be carried out is parked at once; one that ends its worker is a job, which fails at the third crash',
  34: 'a list of Redis has no arguments that could differ',
}
const ofRabbit = Object.fromEntries([42, 43, 44, 45].map((point) => [point, 'over RabbitMQ; Redis has no such thing']))

const root = fileURLToPath(new URL('..', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'sluice-conformance-'))
const file = join(folder, 'report.json')
const vitest = join(root, 'node_modules', 'vitest', 'vitest.mjs')
const tests = ['test/celery', 'test/absorb', 'test/amqp/broker', 'test/amqp/crash']
const args = ['run', ...tests, '--reporter=default', '--reporter=json', `--outputFile.json=${file}`]
// Standard output is for the last line.
spawnSync(process.execPath, [vitest, ...args], { cwd: root, stdio: ['ignore', process.stderr.fd, 'inherit'] })

const report = JSON.parse(readFileSync(file, 'utf8'))
rmSync(folder, { recursive: true })
const results = report.testResults.flatMap(({ assertionResults }) => assertionResults)
const points = new Map()
for (const { title, status } of results) {
  const own = /^(\d+(?:(?:, | and )\d+)*): /.exec(title)?.[1]
  for (const point of own?.split(/\D+/) ?? []) points.set(point, (points.get(point) ?? true) && status === 'passed')
}
const failed = [...points].filter(([, isPassed]) => !isPassed).map(([point]) => point)
const others = results
  .filter(({ title, status }) => status === 'failed' && !/^\d+[^:]{0,20}: /.test(title))
  .map(({ title }) => title)
const named = Object.entries({ ...halves, ...ofRabbit }).map(([point, why]) => ({ point: Number(point), why }))
const sum = { passed: points.size - failed.length, failed: failed.length + others.length, named }
const isWhole = report.success === true && points.size > 0
if (process.argv.includes('--json')) process.stdout.write(`${JSON.stringify(sum)}\n`)
else process.stdout.write(`${sum.passed} passed, ${sum.failed} failed, ${named.length} not covered, or not wholly\n`)
for (const one of [...failed, ...others]) process.stderr.write(`failed: ${one}\n`)
if (!isWhole) process.exitCode = 1
