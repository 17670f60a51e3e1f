// Runs the points of conformance with Celery against real servers, with RabbitMQ and Redis as brokers: `npm run conformance:celery`.
// With --json the last line is {"passed","failed","named"}: numbers of points, and the points that are not covered, or not wholly,
// each with the reason.
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const halves = {
  6: 'not early is asserted; how late depends on the machine, and is printed',
  15: 'the chain runs on stock workers; none of its tasks on a worker of ours',
  18: 'over Redis a queue always exists, so only an exchange without a queue for the message is an error',
  27: 'a message that cannot be carried out is parked at once; one that ends its worker is a job, which fails at the third crash',
  35: 'ping, registered, stats and active_queues; active, reserved and scheduled are questions to the store (`sluice jobs`)',
  36: 'revoke reaches both sides; rate_limit is answered with an error, since limits hold for the whole fleet',
}
const missing = {
  26: 'a message is acknowledged when its job is recorded; what then happens to a killed worker is in test/fleet and test/outlet',
  30: 'a chord that Python sends to a worker of ours is refused by name (test/celery/codec.test.ts); Node sends chords',
  31: 'a producer sees the state of a task when it has ended; `sluice jobs show` has it while it runs',
  38: 'workers of ours send no events of tasks; Flower shows those of stock workers',
  40: 'the bus of events',
  41: 'the bus of events',
  ...Object.fromEntries([42, 43, 44, 45].map((point) => [point, 'the transport: test/amqp'])),
}

const root = fileURLToPath(new URL('..', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'sluice-conformance-'))
const file = join(folder, 'report.json')
const vitest = join(root, 'node_modules', 'vitest', 'vitest.mjs')
const args = ['run', 'test/celery', 'test/absorb', '--reporter=default', '--reporter=json', `--outputFile.json=${file}`]
// Standard output is for the last line.
spawnSync(process.execPath, [vitest, ...args], { cwd: root, stdio: ['ignore', process.stderr.fd, 'inherit'] })

const report = JSON.parse(readFileSync(file, 'utf8'))
rmSync(folder, { recursive: true })
const tests = report.testResults.flatMap(({ assertionResults }) => assertionResults)
const points = new Map()
for (const { title, status } of tests) {
  const point = /^(\d+): /.exec(title)?.[1]
  if (point !== undefined) points.set(point, (points.get(point) ?? true) && status === 'passed')
}
const failed = [...points].filter(([, isPassed]) => !isPassed).map(([point]) => point)
const others = tests
  .filter(({ title, status }) => status === 'failed' && !/^\d+: /.test(title))
  .map(({ title }) => title)
const named = Object.entries({ ...missing, ...halves }).map(([point, why]) => ({ point: Number(point), why }))
const sum = { passed: points.size - failed.length, failed: failed.length + others.length, named }
const isWhole = report.success === true && points.size > 0
if (process.argv.includes('--json')) process.stdout.write(`${JSON.stringify(sum)}\n`)
else process.stdout.write(`${sum.passed} passed, ${sum.failed} failed, ${named.length} not covered, or not wholly\n`)
for (const one of [...failed, ...others]) process.stderr.write(`failed: ${one}\n`)
if (!isWhole) process.exitCode = 1
