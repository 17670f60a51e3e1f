/**
 * Two services with two replicas each, which are killed while events come in, and the database and the broker restart: no event is
 * lost, and repetitions are few, and flagged. `npm run chaos` has the long form.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, expect, it, onTestFinished } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { event, Sluice } from '../../src/index.ts'
import { isLong } from '../long.ts'
import { type PostgresServer, startPostgres } from '../servers/postgres.ts'
import { type Broker, type RabbitServer, startRabbit } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'
import { member } from '../v8.ts'

const replica = fileURLToPath(new URL('./replica.mjs', import.meta.url))
const events = isLong ? 10_000 : 300
const kills = isLong ? 10 : 2
const slots = 10
/** So many emit at a time, one by one. */
const callers = 10

let rabbit: Promise<RabbitServer> | undefined
afterAll(async () => (await rabbit)?.close())

/** A virtual host of the RabbitMQ that these tests restart. */
async function ownBroker(): Promise<Broker & Pick<RabbitServer, 'kill' | 'start'>> {
  rabbit ??= startRabbit()
  const server = await rabbit
  const { kill, start: startAgain } = server
  return { ...(await server.fresh()), kill, start: startAgain }
}

interface Servers {
  database: PostgresServer
  broker: Awaited<ReturnType<typeof ownBroker>> | undefined
}

/** Starts a replica, and resolves when its worker has started. */
async function start({ database, broker }: Servers, service: string, dir: string): Promise<ChildProcess> {
  const carrier = broker === undefined ? {} : { SLUICE_EVENTS: 'rabbitmq', AMQP_URL: broker.url }
  const child = spawn(process.execPath, [...member, replica, database.url, service, dir], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, ...carrier },
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  await once(child.stdout, 'data')
  return child
}

/** What handlers have got: each process appends a line for each to a file of its own, which outlives it. */
function handled(dir: string) {
  const got = new Map<string, { id: string; isFlagged: boolean }[]>()
  for (const name of readdirSync(dir))
    for (const line of readFileSync(join(dir, name), 'utf8').split('\n')) {
      const [service, n, isFlagged, id] = line.split(' ')
      if (id === undefined) continue
      const key = `${service} ${n}`
      got.set(key, [...(got.get(key) ?? []), { id, isFlagged: isFlagged === 'true' }])
    }
  return got
}

it.each([
  ['the store', 'replicas and the database are killed'],
  ['RabbitMQ', 'replicas and the database are killed, and the broker restarts'],
  ['RabbitMQ', 'replicas, database and broker are killed, and events are emitted many at a time'],
])('a fleet brings every event to each of two services, over %s, while %s', async (carrier, how) => {
  const isMany = how.includes('many at a time')
  const dir = mkdtempSync(join(tmpdir(), 'sluice-handled-'))
  onTestFinished(() => rmSync(dir, { recursive: true }))
  const [database, broker] = await Promise.all([startPostgres(), carrier === 'RabbitMQ' ? ownBroker() : undefined])
  onTestFinished(() => database.close())
  const servers = { database, broker }
  const options = broker === undefined ? {} : { events: 'rabbitmq' as const, amqp: broker.url }
  const sluice = await Sluice.open({ store: database.url, logLevel: 'silent', ...options })
  onTestFinished(() => sluice.close())
  const services = ['a', 'b', 'a', 'b']
  const replicas = await Promise.all(services.map((service) => start(servers, service, dir)))
  const number = event('fleet.number')
  const emitAll = async (send: () => Promise<unknown>): Promise<unknown> => {
    try {
      return await send()
    } catch (error) {
      // On a busy machine a restart takes longer than an event waits for it. Then it is emitted as another one.
      if (!['SLUICE_BROKER_SILENT', 'SLUICE_BROKER_UNREACHABLE'].includes(String(codeOf(error)))) throw error
      return emitAll(send)
    }
  }
  const emit = (next: { n: number }) => emitAll(() => sluice.events.emit(number, next))
  const emitEach = async (left: { n: number }[]) => {
    const caller = async () => {
      for (let next = left.shift(); next !== undefined; next = left.shift()) await emit(next)
    }
    await Promise.all(Array.from({ length: callers }, caller))
  }
  const portion = Math.ceil(events / (kills + 1))
  const startMs = systemClock.monotonicMs()
  for (let killed = 0; killed <= kills; killed++) {
    const from = killed * portion
    const numbers = Array.from({ length: Math.min(portion, events - from) }, (_, n) => ({ n: from + n }))
    const emitted = isMany ? emitAll(() => sluice.events.emitMany(number, numbers)) : emitEach(numbers)
    const before = handled(dir).size
    await until(() => handled(dir).size > before, 'some are handled')
    // Each in turn, one alone, one with the database and one with the broker, while events are emitted and handled.
    const at = killed % replicas.length
    const again = (async () => {
      if (killed === kills) return
      replicas[at]?.kill('SIGKILL')
      if (killed % 3 === 0) {
        await database.stop('immediate')
        await database.start()
      } else if (killed % 3 === 1 && broker !== undefined) {
        await broker.kill(isMany ? 'SIGKILL' : 'SIGTERM')
        await broker.start()
      }
      replicas[at] = await start(servers, services[at] ?? 'a', dir)
    })()
    await emitted
    await again
  }
  await until(() => handled(dir).size === 2 * events, 'each service has each event', 300_000)
  const tookS = (systemClock.monotonicMs() - startMs) / 1_000
  // What has been handled and not been recorded as handled follows.
  if (broker === undefined) await until(async () => (await sluice.jobs.status()).running === 0, 'nothing runs')
  else await until(async () => /^\[(\{[^}]*,0\},?)*\]$/.test(await messagesOf(broker)), 'no queue has any')
  const got = handled(dir)
  expect(got.size).toBe(2 * events)
  const unflagged: string[] = []
  let repeated = 0
  for (const [key, each] of got)
    for (const id of new Set(each.map((one) => one.id))) {
      const all = each.filter((one) => one.id === id)
      repeated += all.length - 1
      // Of several deliveries of an event one may be unflagged: the first.
      if (all.filter(({ isFlagged }) => !isFlagged).length > 1) unflagged.push(key)
    }
  expect(unflagged).toEqual([])
  console.log(
    `over ${carrier}, while ${how}: ${2 * events} deliveries in ${tookS.toFixed(1)} s, ${repeated} repeated, all flagged, 0 lost`,
  )
  // What lost replicas and connections had in hand, at most; over a long run next to nothing. On a busy machine replicas may report
  // late what they have handled.
  const unreported = 2 * (isMany ? portion : callers)
  expect(repeated).toBeLessThanOrEqual(isLong ? (2 * events) / 200 : 6 * slots + unreported)
})

const codeOf = (error: unknown) => (error as { code?: unknown }).code

/** The queues of a broker and how many messages each has, as Erlang writes it. */
async function messagesOf(broker: Broker): Promise<string> {
  const all = await broker.evaluate(
    `[{element(4, N), M} || [{name, N}, {messages, M}] <- rabbit_amqqueue:info_all(<<"${broker.name}">>, [name, messages]), element(4, N) =/= <<"sluice.services">>]`,
  )
  return all.replaceAll(/\s/g, '')
}
