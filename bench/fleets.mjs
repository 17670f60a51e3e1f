// Measures a dispatcher and a worker over RabbitMQ beside a worker that claims for itself, in turns, by jobs a second, by CPU time a job,
// which other programs on the machine disturb less, and by the time from `send` in another process to the end of a job that does nothing,
// one at a time (docs/fleets.md). `--jobs n`, `--turns n`, `--slots n`, `--profile folder`, `--json`.
import { fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { cpuSeconds } from './cpu.mjs'
import { calledSingly, quantile } from './load.mjs'
import { start as startPostgres } from './servers/postgres.mjs'
import { start as startRabbitmq } from './servers/rabbitmq.mjs'

const { values } = parseArgs({
  options: {
    jobs: { type: 'string', default: '10000' },
    turns: { type: 'string', default: '2' },
    slots: { type: 'string', default: '100' },
    profile: { type: 'string' },
    json: { type: 'boolean' },
  },
})
const jobs = Number(values.jobs)
const singles = 200
const member = fileURLToPath(new URL('guide-member.mjs', import.meta.url))
const shapes = { alone: ['work'], fleet: ['dispatch', 'execute'] }

async function measure(roles, broker, postgres) {
  const { Sluice, task } = await import('../dist/index.js')
  const [amqp, place] = [(await broker.place()).url, await postgres.place()]
  const env = { ...process.env, DATABASE_URL: place.url, AMQP_URL: amqp, BENCH_SLOTS: values.slots }
  const execArgv = values.profile === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${values.profile}`]
  const sender = await Sluice.open({ store: place.url })
  const noop = task('noop', { run: () => {} })
  await sender.sendMany(
    noop,
    Array.from({ length: jobs }, () => ({ ms: 0 })),
  )
  const times = []
  const members = []
  let expected = jobs
  let isDone
  const reached = () => new Promise((resolve) => (isDone = resolve))
  const done = reached()
  try {
    const servers = [broker.pid, postgres.pid].flat()
    const before = cpuSeconds(servers)
    for (const role of roles)
      await new Promise((resolve) => {
        const child = fork(member, [role], { env, execArgv })
        members.push(child)
        child.on('message', (news) => {
          if (news.ready) return resolve()
          times.push(...news.times)
          if (times.length >= expected) isDone()
        })
      })
    await done
    const cpu = members.map(({ pid }) => cpuSeconds([pid]))
    const sorted = times.toSorted((a, b) => a - b)
    const perSecond = (jobs - 1) / ((sorted.at(-1) - sorted[0]) / 1_000)
    const ms = (seconds) => (seconds / jobs) * 1_000
    const found = { perSecond, node: cpu.map(ms), servers: ms(cpuSeconds(servers) - before) }
    expected = jobs + singles
    const last = reached()
    const sent = await calledSingly(singles, () => sender.send(noop, { ms: 0 }))
    await last
    const waits = times.slice(jobs).map((at, i) => at - sent[i])
    return { ...found, p50: quantile(waits, 0.5), p99: quantile(waits, 0.99) }
  } finally {
    const ended = members.map((child) => new Promise((resolve) => child.once('exit', resolve)))
    for (const child of members) child.kill(values.profile === undefined ? 'SIGKILL' : 'SIGTERM')
    await Promise.all(ended)
    await sender.close()
  }
}

const [broker, postgres] = [await startRabbitmq(), await startPostgres()]
try {
  for (let turn = 0; turn < Number(values.turns); turn++)
    for (const [name, roles] of Object.entries(shapes)) {
      const found = { shape: name, ...(await measure(roles, broker, postgres)) }
      if (values.json) console.log(JSON.stringify(found))
      else
        console.log(
          `${name}: ${Math.round(found.perSecond)} jobs/s; CPU ms a job: ` +
            `${roles.map((role, i) => `${role} ${found.node[i].toFixed(3)}`).join(', ')}, servers ${found.servers.toFixed(3)}; ` +
            `one at a time p50 ${found.p50.toFixed(1)}, p99 ${found.p99.toFixed(1)} ms`,
        )
    }
} finally {
  await broker.close()
  await postgres.close()
}
