// Runs the points of conformance with Celery against real servers, with RabbitMQ and Redis as brokers: `npm run conformance:celery`.
// Points 40 and 41 are those of the bus of events (test/bus).
// Each point has a test over each broker, but for those that are named. A point without a test has failed.
// With --json the last line is {"passed","failed","named"}: numbers of points, and the points that are not covered over Redis, or
// not wholly, each with the reason.
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const ofRabbit = 'over RabbitMQ; Redis has no such thing'
const onRedis = {
  17: 'over Redis a topic is what kombu makes of it: patterns of bindings, which only workers of Celery declare',
  18: 'over Redis a queue always exists, so only an exchange without a queue for the message is an error',
  34: 'a list of Redis has no arguments that could differ',
  42: ofRabbit,
  43: ofRabbit,
  44: ofRabbit,
  45: ofRabbit,
}
const wanted = Array.from({ length: 45 }, (_, i) => i + 1).filter((point) => point !== 40 && point !== 41)

const root = fileURLToPath(new URL('..', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'sluice-conformance-'))
const file = join(folder, 'report.json')
const vitest = join(root, 'node_modules', 'vitest', 'vitest.mjs')
const tests = [
  'test/celery',
  'test/absorb',
  'test/direct/poison',
  'test/direct/redis',
  'test/amqp/broker',
  'test/amqp/crash',
]
const args = ['run', ...tests, '--reporter=default', '--reporter=json', `--outputFile.json=${file}`]
// Standard output is for the last line.
spawnSync(process.execPath, [vitest, ...args], { cwd: root, stdio: ['ignore', process.stderr.fd, 'inherit'] })

const report = JSON.parse(readFileSync(file, 'utf8'))
rmSync(folder, { recursive: true })
const results = report.testResults.flatMap(({ name: place, assertionResults }) =>
  assertionResults.map(({ title, status, ancestorTitles }) => {
    const isRedis = /redis[^/]*$/.test(place) || ancestorTitles.some((one) => one.includes('over Redis'))
    const points = /^(\d+(?:(?:, | and )\d+)*): /.exec(title)?.[1].split(/\D+/).map(Number) ?? []
    return { title, isPassed: status === 'passed', hasFailed: status === 'failed', isRedis, points }
  }),
)
const failed = wanted.flatMap((point) =>
  ['RabbitMQ', 'Redis'].flatMap((broker) => {
    const own = results.filter((one) => one.points.includes(point) && one.isRedis === (broker === 'Redis'))
    const isLeftOut = broker === 'Redis' && point in onRedis && own.length === 0
    return isLeftOut || (own.length > 0 && own.every(({ isPassed }) => isPassed)) ? [] : [`${point} over ${broker}`]
  }),
)
const others = results.filter(({ hasFailed, points }) => hasFailed && points.length === 0).map(({ title }) => title)
const named = Object.entries(onRedis).map(([point, why]) => ({ point: Number(point), why }))
const passed = wanted.filter((point) => !failed.some((one) => one.startsWith(`${point} `))).length
const sum = { passed, failed: failed.length + others.length, named }
const isWhole = report.success === true && sum.failed === 0
if (process.argv.includes('--json')) process.stdout.write(`${JSON.stringify(sum)}\n`)
else
  process.stdout.write(
    `${sum.passed} passed, ${sum.failed} failed, ${named.length} not covered over Redis, or not wholly\n`,
  )
for (const one of [...failed, ...others]) process.stderr.write(`failed: ${one}\n`)
if (!isWhole) process.exitCode = 1
