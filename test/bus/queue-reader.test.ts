/** Which messages a reader of a queue has in hand, and when it gives them back. */
import type { Channel, GetMessage } from 'amqplib'
import { expect, it } from 'vitest'
import { QueueReader } from '../../src/bus/queue-reader.ts'

it('a reader keeps what it has in hand while the last message is dealt with, so that no other call gets it', async () => {
  const calls: string[] = []
  const channel = {
    get: async () => (calls.push('get'), { fields: {}, properties: {}, content: Buffer.from('') } as GetMessage),
    ack: () => void calls.push('ack'),
    nackAll: () => void calls.push('give back'),
    checkQueue: async () => ({ queue: 'archive', messageCount: 0, consumerCount: 0 }),
  }
  const reader = new QueueReader(channel as unknown as Channel, 'archive', 600_000)
  await reader.next()
  expect(await reader.keepDuring(Promise.resolve(7))).toBe(7)
  reader.drop()
  await reader.next()
  await expect(reader.keepDuring(Promise.reject(new Error('not published')))).rejects.toThrow('not published')
  await reader.end()
  expect(calls).toEqual(['get', 'ack', 'get', 'give back'])
})
