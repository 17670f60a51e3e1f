import { Socket } from 'node:net'
import { Writable } from 'node:stream'
import { expect, it, vi } from 'vitest'
import { addressOf } from '../../src/amqp/address.ts'
import { openSession, writeTogether } from '../../src/amqp/session.ts'
import { freshBroker } from '../servers/rabbitmq.ts'

it('a session sends a message at once, and not when the one before is acknowledged', async ({ onTestFinished }) => {
  const { url } = await freshBroker()
  const setNoDelay = vi.spyOn(Socket.prototype, 'setNoDelay')
  onTestFinished(() => setNoDelay.mockRestore())
  const session = await openSession(addressOf(url), 'test', 0)
  onTestFinished(() => session.end())
  const { stream } = session.model.connection as unknown as { stream: Socket }
  const set = setNoDelay.mock.calls.filter((_, n) => setNoDelay.mock.contexts[n] === stream)
  expect(set).toEqual([[true]])
})

it('a session writes at once what is given at one time, in order, and the rest later', async () => {
  const writes: string[] = []
  const stream = new Writable({
    write: (chunk: Buffer, _encoding, done) => {
      writes.push(chunk.toString())
      done()
    },
    writev: (chunks, done) => {
      writes.push(chunks.map(({ chunk }) => (chunk as Buffer).toString()).join(''))
      done()
    },
  })
  writeTogether(stream)
  stream.write('a')
  stream.write('b')
  stream.write('c')
  expect(writes).toEqual([])
  await new Promise(setImmediate)
  expect(writes).toEqual(['abc'])
  stream.write('d')
  // The end does not wait for a later turn.
  stream.end('e')
  await new Promise((resolve) => stream.once('finish', resolve))
  expect(writes).toEqual(['abc', 'de'])
})
