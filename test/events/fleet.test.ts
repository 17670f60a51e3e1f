/** Two services with two replicas each, which are killed while events come in: none is lost, and repetitions are flagged. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { afterEach, expect, it } from 'vitest'
import { event, Sluice } from '../../src/index.ts'
import { isLong } from '../long.ts'
import { freshDatabase } from '../servers/database.ts'
import { type RabbitServer, startRabbit } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'

const replica = fileURLToPath(new URL('./replica.mjs', import.meta.url))
const events = isLong ? 10_000 : 600
const kills = isLong ? 10 : 2
const running = new Set<ChildProcess>()
let sluice: Sluice
let broker: RabbitServer | undefined

afterEach(async () => {
  for (const child of running) child.kill('SIGKILL')
  await sluice.close()
  await broker?.close()
  broker = undefined
})

async function start(url: string, service: string): Promise<ChildProcess> {
  const carrier = broker === undefined ? {} : { SLUICE_EVENTS: 'rabbitmq', AMQP_URL: broker.url }
  const child = spawn(process.execPath, ['--liftoff-only', replica, url, service], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, ...carrier },
  })
  running.add(child)
  child.once('exit', () => running.delete(child))
  await once(child.stdout, 'data')
  return child
}

it.each(['the store', 'RabbitMQ, which is killed, too'])(
  'delivers every event to each of two services while their replicas are killed, over %s',
  async (carrier) => {
    const { url } = await freshDatabase()
    broker = carrier === 'the store' ? undefined : await startRabbit()
    sluice = await Sluice.open({
      store: url,
      ...(broker && { events: 'rabbitmq', amqp: broker.url, logLevel: 'error' }),
    })
    await sluice.db.script(
      'create table handled (service text not null, n integer not null, redelivered boolean not null)',
    )
    const replicas = await Promise.all(['a', 'b', 'a', 'b'].map((service) => start(url, service)))
    const number = event('fleet.number')
    const portion = Math.ceil(events / (kills + 1))
    const restarts: Promise<ChildProcess>[] = []
    for (let killed = 0; killed <= kills; killed++) {
      const from = killed * portion
      const numbers = Array.from({ length: Math.min(portion, events - from) }, (_, n) => ({ n: from + n }))
      await sluice.events.emitMany(number, numbers)
      const [row] = await sluice.db.query<{ n: number }>('select count(*)::integer as n from handled')
      await until(async () => {
        const [now] = await sluice.db.query<{ n: number }>('select count(*)::integer as n from handled')
        return (now?.n ?? 0) > (row?.n ?? 0)
      }, 'some are handled')
      if (killed === kills) break
      const at = killed % replicas.length
      replicas[at]?.kill('SIGKILL')
      const again = start(url, at % 2 === 0 ? 'a' : 'b').then((child) => (replicas[at] = child))
      restarts.push(again)
      if (broker !== undefined && killed === 0) {
        // A worker that starts while the broker is away ends with an error.
        await again
        await broker.kill()
        await broker.start()
      }
      if (isLong) await again
    }
    await Promise.all(restarts)
    const count = `select count(*)::integer as n, count(distinct (service, n))::integer as different,
    count(*) filter (where redelivered)::integer as flagged from handled`
    type Count = { n: number; different: number; flagged: number }
    const read = async () => (await sluice.db.query<Count>(count))[0] as Count
    await until(async () => (await read()).different === 2 * events, 'each service has each event', 120_000)
    if (broker === undefined)
      await until(async () => (await sluice.jobs.status()).running === 0, 'nothing runs any more')
    const { n, different, flagged } = await read()
    const repeated = n - different
    expect(flagged).toBeGreaterThanOrEqual(repeated)
    // What a killed replica had in hand, at most; over a long run next to nothing.
    expect(repeated).toBeLessThanOrEqual(isLong ? (2 * events) / 200 : (broker === undefined ? kills : kills + 4) * 10)
    if (isLong) console.log(`${2 * events} deliveries, ${repeated} repeated, all flagged`)
  },
)
