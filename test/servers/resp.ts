/** A bare connection to Redis: RESP2, pipelined, no reconnecting. A client as a user may bring one. */
import { connect } from 'node:net'
import type { RedisClient } from '../../src/redis/client.ts'

/** A client, and how it is closed. */
export type Connection = RedisClient & { close(): void }

type Waiting = { resolve: (reply: unknown) => void; reject: (error: Error) => void }

/** Connects. When the connection is lost, all that waits is rejected. */
export async function connectRedis(port: number): Promise<Connection> {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true })
  await new Promise<void>((resolve, reject) => socket.once('connect', resolve).once('error', reject))
  const waiting: Waiting[] = []
  let rest = Buffer.alloc(0)
  socket.on('data', (chunk: Buffer) => {
    rest = Buffer.concat([rest, chunk])
    for (let at = 0; ;) {
      const read = parse(rest, at)
      if (read === undefined) {
        rest = rest.subarray(at)
        return
      }
      at = read.next
      const one = waiting.shift()
      if (read.value instanceof Error) one?.reject(read.value)
      else one?.resolve(read.value)
    }
  })
  socket.on('error', () => {})
  socket.on('close', () => {
    for (const { reject } of waiting.splice(0)) reject(new Error('the connection to Redis was lost'))
  })
  return {
    send(command, args) {
      const words = [command, ...args].map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`)
      return new Promise((resolve, reject) => {
        if (socket.destroyed) return reject(new Error('the connection to Redis was lost'))
        waiting.push({ resolve, reject })
        socket.write(`*${words.length}\r\n${words.join('')}`)
      })
    },
    close: () => socket.destroy(),
  }
}

/** One reply from `at` on; undefined: the reply is incomplete. */
function parse(bytes: Buffer, at: number): { value: unknown; next: number } | undefined {
  const end = bytes.indexOf('\r\n', at)
  if (end < 0) return undefined
  const line = bytes.toString('utf8', at + 1, end)
  const next = end + 2
  const kind = String.fromCharCode(bytes[at] ?? 0)
  if (kind === '+') return { value: line, next }
  if (kind === '-') return { value: new Error(line), next }
  if (kind === ':') return { value: Number(line), next }
  const length = Number(line)
  if (length < 0) return { value: null, next }
  if (kind === '*') return list(bytes, next, length)
  if (bytes.length < next + length + 2) return undefined
  return { value: bytes.toString('utf8', next, next + length), next: next + length + 2 }
}

function list(bytes: Buffer, from: number, length: number): { value: unknown[]; next: number } | undefined {
  const value: unknown[] = []
  let next = from
  for (let i = 0; i < length; i++) {
    const one = parse(bytes, next)
    if (one === undefined) return undefined
    value.push(one.value)
    next = one.next
  }
  return { value, next }
}
