/** The rights that a user of RabbitMQ needs (docs/broker.md). */
import { beforeEach, expect, it } from 'vitest'
import { event, fail, on } from '../../src/index.ts'
import { type Broker, freshBroker } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'
import { program, queuesOf, stranger } from './stage.ts'

const paid = event('orders.paid')
let host: Broker
let url: string

/** Creates a user, and resolves to the URL by which it connects. Rights: to configure, to write, to read. */
async function userOf(name: string, rights: readonly [string, string, string]): Promise<string> {
  const text = (of: string) => `<<"${of}">>`
  const [user, vhost, by] = [text(name), text(host.name), text('test')]
  await host.evaluate(
    `rabbit_auth_backend_internal:add_user(${user}, ${text('secret')}, ${by}), ` +
      `rabbit_auth_backend_internal:set_permissions(${user}, ${vhost}, ${rights.map(text).join(', ')}, ${by})`,
  )
  return host.url.replace('guest:guest', `${name}:secret`)
}

beforeEach(async () => {
  host = await freshBroker()
  url = await userOf(host.name, ['^sluice[.]', '^(sluice[.]|amq[.]default$)', '^sluice[.]'])
})

it.each([false, true])(
  'the rights are those for what begins with sluice, and for the default exchange; quorum: %s',
  async (quorum) => {
    const got: unknown[] = []
    let isMended = false
    const work = [
      paid.on((n, { attempt }) => {
        got.push([n, attempt])
        if (attempt === 1) throw new Error('again')
        if (!isMended) throw fail('never')
      }),
      on('orders.#', (n) => void got.push(n), { name: 'audit', concurrency: 2 }),
    ]
    const events = { on: 'rabbitmq', quorum } as const
    const a = await program(url, { service: 'a', events }, work)
    const emitter = await program(url, { events })
    await emitter.events.emit(paid, 1)
    await emitter.events.emit(event('nobody.gets.it'), 1)
    await until(
      async () => (await a.events.archive().list({ event: 'orders.paid' })).length === 1,
      'it has failed for good',
    )
    isMended = true
    await until(async () => (await a.events.archive().replay({})) === 1, 'it is replayed')
    await until(() => got.length === 4)
    // A message whose worker was lost goes through a queue that is declared then.
    await a.worker?.stop()
    await emitter.events.emit(paid, 2)
    const dying = await stranger(host.url)
    let isTaken = false
    const queue = `sluice.events:a:main${quorum ? ':quorum' : ''}`
    await dying.consume(queue, { prefetch: 1 }, () => void (isTaken = true))
    await until(() => isTaken, 'a worker has it')
    await dying.close()
    const again = await program(url, { service: 'a', events }, work)
    await until(() => got.filter((one) => String(one) === '2,2').length === 1)
    expect(await again.events.services()).toMatchObject([{ service: 'a' }])
    await until(async () => (await queuesOf(host)).get('sluice.unrouted') === 1)
    expect([...a.lines, ...again.lines].filter((line) => /refuses|could not/.test(line))).toEqual([])
  },
)

it('the rights are named if they are missing', async () => {
  await program(host.url, { service: 'a' }, [paid.on(() => undefined)])
  const reader = await userOf(`${host.name}-reader`, ['^$', '^$', '.*'])
  const other = await program(reader)
  await expect(other.events.emit(paid, 1)).rejects.toMatchObject({
    code: 'SLUICE_BROKER_REFUSED',
    message: expect.stringContaining('sluice.unrouted'),
  })
})
