import { Writable } from 'node:stream'
import { expect, it } from 'vitest'
import { writeTogether } from '../../src/amqp/session.ts'

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
