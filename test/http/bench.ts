import { lookup } from 'node:dns'
import { createServer as createHttpServer } from 'node:http'
import type { IncomingMessage, RequestListener } from 'node:http'
import { createServer as createTcpServer } from 'node:net'
import type { AddressInfo, LookupFunction, Server, Socket } from 'node:net'
import { Agent } from 'undici'
import { onTestFinished } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import type { Clock } from '../../src/core/clock.ts'
import { createAgent, type GuardedAgent } from '../../src/http/agent.ts'
import { createFetch } from '../../src/http/fetch.ts'
import { Guard } from '../../src/http/guard.ts'
import { Allowance, type Grants } from '../../src/http/allowance.ts'
import type { FetchOptions } from '../../src/http/fetch.ts'

/** A clock that stands still until a test moves it. */
export interface HandClock extends Clock {
  nowMs: number
}

export function handClock(): HandClock {
  const clock: HandClock = {
    ...systemClock,
    nowMs: 1_000,
    monotonicMs: () => clock.nowMs,
    wallMs: () => 1_800_000_000_000,
  }
  return clock
}

async function listen(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return (server.address() as AddressInfo).port
}

/** A plain HTTP server that ends with the test. */
export async function httpServer(listener: RequestListener): Promise<string> {
  const server = createHttpServer(listener)
  const port = await listen(server)
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${port}`
}

export async function textOf(request: IncomingMessage): Promise<string> {
  let text = ''
  for await (const chunk of request) text += String(chunk)
  return text
}

/** A TCP server that keeps every byte that it receives, by connection, and answers what `answer` returns for all bytes so far. */
export async function tcpServer(answer: (received: string, socket: Socket) => string | undefined) {
  const received: string[] = []
  const sockets = new Set<Socket>()
  const server = createTcpServer((socket) => {
    const index = received.push('') - 1
    sockets.add(socket)
    socket.on('error', () => {})
    socket.on('close', () => sockets.delete(socket))
    socket.on('data', (bytes) => {
      received[index] += bytes.toString('latin1')
      const reply = answer(received[index] ?? '', socket)
      if (reply !== undefined) socket.write(reply)
    })
  })
  const port = await listen(server)
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return { port, received, sockets }
}

/** Grants that count: each further one lives `lifeMs` on the given clock. */
export function countingGrants(clock: Clock, deadlineMs: number | undefined, lifeMs = 100) {
  const taken: number[] = []
  const holds: { ms: number | undefined; reason: string }[] = []
  const grants: Grants = {
    own: deadlineMs === undefined ? undefined : { deadlineMs },
    take: async () => {
      taken.push(clock.monotonicMs())
      return deadlineMs === undefined ? undefined : { deadlineMs: clock.monotonicMs() + lifeMs }
    },
    giveBack: async () => {},
    recordRefusal: async ({ retryAfterMs, answer }) => {
      holds.push({ ms: retryAfterMs, reason: answer })
    },
    recordAccepted: () => {},
    recordCounts: () => {},
  }
  return { grants, taken, holds }
}

/** Everything that a test of `fetch` needs; the agent ends with the test. */
export function setup(
  options: {
    deadlineMs?: number
    agent?: GuardedAgent
    clock?: HandClock
    grants?: Partial<Grants>
    limits?: FetchOptions['limits']
  } = {},
) {
  const clock = options.clock ?? handClock()
  const agent = options.agent ?? createAgent(new Guard(['127.0.0.1']))
  onTestFinished(() => agent.destroy())
  const counting = countingGrants(clock, options.deadlineMs)
  const abort = new AbortController()
  const fetch = createFetch({
    agent,
    clock,
    allowance: new Allowance({ ...counting.grants, ...options.grants }, abort.signal),
    ...(options.limits === undefined ? {} : { limits: options.limits }),
  })
  return { ...counting, agent, clock, abort, fetch }
}

/** An answer with the body `ok`. */
export const ok = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok'
/** Answers each request once it is complete: its head, or its body `BODY`. */
export const answerEach = (received: string) =>
  received.endsWith('\r\n\r\n') || received.endsWith('BODY') ? ok : undefined

/** An agent whose connections take `connectMs` of the test clock's time, because the name look-up is that slow. */
export function slowAgent(clock: HandClock, connectMs: number) {
  const slow: LookupFunction = (hostname, options, done) => {
    lookup(
      hostname,
      options as never,
      ((error: never, address: never, family: never) => {
        clock.nowMs += connectMs
        done(error, address, family)
      }) as never,
    )
  }
  return createAgent(new Guard(['127.0.0.1']), { lookup: slow, family: 4 } as never)
}

/** An agent that makes every request on the same connection. */
export function oneConnection(): GuardedAgent {
  return Object.assign(new Agent({ connections: 1 }), { guard: new Guard(['127.0.0.1']) })
}
