/** Settings and queues that change while events are under way, and events that no setting suits. */
import { beforeEach, expect, it } from 'vitest'
import { event, fail } from '../../src/index.ts'
import { type Broker, freshBroker } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'
import { program, queuesOf, stranger } from './stage.ts'

const paid = event('orders.paid')
let host: Broker
let url: string
beforeEach(async () => {
  host = await freshBroker()
  ;({ url } = host)
})

it('a service retries an event once after a change to quorum queues', async () => {
  const got: unknown[][] = []
  const handler = paid.on(
    (n, { attempt }) => {
      got.push([n, attempt])
      if (attempt < 3) throw new Error('again')
    },
    { retry: { attempts: 3, base: 30 }, group: 'main' },
  )
  const before = await program(url, { service: 'a' }, [handler])
  await before.events.emit(paid, 'classic')
  await until(() => got.length === 3)
  await before.worker?.stop()
  const after = await program(url, { service: 'a', events: { on: 'rabbitmq', quorum: true } }, [handler])
  await after.events.emit(paid, 'quorum')
  await after.events.emit(paid, 'last')
  await until(() => got.filter(([, attempt]) => attempt === 3).length === 3)
  await until(async () => [...(await queuesOf(host)).values()].every((count) => count === 0))
  expect(got).toHaveLength(9)
})

it('a service archives an event whose limits cannot be decided, instead of trying it for ever', async () => {
  const got: unknown[] = []
  const a = await program(url, { service: 'a' }, [paid.on((one) => void got.push(one), { order: 'account.id' })])
  await a.events.emit(paid, { no: 'account' })
  // The worker's own look at the archive hides what it has in hand.
  const refused = { handler: 'orders.paid', reason: 'refused' }
  await until(async () => (await a.events.archive().list(refused)).length === 1)
  await a.events.emit(paid, { account: { id: 1 } })
  await until(() => got.length === 1)
})

it('a service declares an archive again that was deleted, and archives an event without another attempt', async () => {
  const attempts: unknown[] = []
  const a = await program(url, { service: 'a' }, [
    paid.on((_, { attempt }) => {
      attempts.push(attempt)
      throw fail('never')
    }),
  ])
  const other = await stranger(url)
  await other.use((channel) => channel.deleteQueue('sluice.archive:a'))
  await a.events.emit(paid, 1)
  await until(async () => (await queuesOf(host)).get('sluice.archive:a') === 1)
  expect(attempts).toEqual([1])
})

it('a service declares the queue of a delay again that was deleted', async () => {
  const attempts: unknown[] = []
  const a = await program(url, { service: 'a' }, [
    paid.on(
      (_, { attempt }) => {
        attempts.push(attempt)
        if (attempt === 1) throw new Error('once')
      },
      { retry: { base: 40 }, group: 'main' },
    ),
  ])
  await a.events.emit(paid, 1)
  await until(() => attempts.length === 2)
  const other = await stranger(url)
  await other.use((channel) => channel.deleteQueue('sluice.retry:a:40'))
  await a.events.emit(paid, 2)
  await until(() => attempts.length === 4)
  expect(attempts).toEqual([1, 2, 1, 2])
})

it('an archive replays what follows a message whose queue nobody knows', async () => {
  let isMended = false
  const got: unknown[] = []
  const a = await program(url, { service: 'a' }, [
    paid.on((n) => {
      if (!isMended) throw fail('never')
      got.push(n)
    }),
  ])
  const other = await stranger(url)
  await other.publish({ routingKey: 'sluice.archive:a', body: Buffer.from('x') })
  await a.events.emit(paid, 1)
  await until(async () => (await a.events.archive().count()) === 2)
  isMended = true
  expect(await a.events.archive().replay({})).toBe(1)
  await until(() => got.length === 1)
  expect(await a.events.archive().count()).toBe(1)
})
