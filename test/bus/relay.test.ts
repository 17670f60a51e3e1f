/** Events of transactions, which the store keeps until RabbitMQ takes them. */
import { expect, it } from 'vitest'
import { event, task } from '../../src/index.ts'
import { freshDatabase } from '../servers/database.ts'
import { freePort } from '../servers/postgres.ts'
import { later, until } from '../until.ts'
import { program } from './stage.ts'

const paid = event('relay.paid')

it('relays take no slots from other jobs while RabbitMQ is away', async () => {
  let ran = 0
  const own = task('relay.other', { run: () => void ran++ })
  const a = await program(`amqp://127.0.0.1:${await freePort()}`, {}, [own], 2)
  const emitted = later(a.events.emit(paid, 0))
  await until(() => a.lines.some((line) => line.includes('no connection to RabbitMQ')))
  await a.transaction((tx) => a.events.emitMany(paid, [1, 2, 3, 4], { tx }))
  await a.send(own, null)
  await until(() => ran === 1)
  const relays = await a.db.query(`select claim, attempt from sluice.job where task = 'events:relay'`)
  expect(relays).toEqual(Array.from({ length: 4 }, () => ({ claim: null, attempt: 0 })))
  void a.close()
  await expect(emitted).rejects.toMatchObject({ code: 'SLUICE_BROKER_UNREACHABLE' })
})

it('relays take no slots from other jobs either while it is not known yet that RabbitMQ is away', async () => {
  const [port, { url: store }] = [await freePort(), await freshDatabase()]
  const emitter = await program(`amqp://127.0.0.1:${port}`, { store })
  await emitter.transaction((tx) => emitter.events.emitMany(paid, [1, 2, 3, 4], { tx }))
  let ran = 0
  const own = task('relay.behind', { run: () => void ran++ })
  const a = await program(`amqp://127.0.0.1:${port}`, { store }, [own], 2)
  await until(() => a.lines.some((line) => line.includes('no connection to RabbitMQ')))
  await a.send(own, null)
  await until(() => ran === 1)
  const read = () => a.db.query(`select claim, attempt from sluice.job where task = 'events:relay'`)
  await until(async () => (await read()).every(({ claim }) => claim === null))
  // No attempt has counted.
  expect(await read()).toEqual(Array.from({ length: 4 }, () => ({ claim: null, attempt: 0 })))
})
