/** The check of a grant just before its request is written: connections, repeats, and the end of a request. */
import { Agent } from 'undici'
import { expect, test } from 'vitest'
import { readMoment, systemClock } from '../../src/core/clock.ts'
import type { GuardedAgent } from '../../src/http/agent.ts'
import { maxStaleGrants } from '../../src/http/fetch.ts'
import { Guard } from '../../src/http/guard.ts'
import type { Grant } from '../../src/http/send-check.ts'
import { until } from '../until.ts'
import { answerEach, type HandClock, handClock, ok, oneConnection, setup, slowAgent, tcpServer } from './bench.ts'

test('a grant that expires while connecting is replaced, and no byte is written under it', async () => {
  const clock = handClock()
  const { port, received } = await tcpServer((text) => (text === '' ? undefined : ok))
  const { fetch, taken } = setup({ clock, agent: slowAgent(clock, 500), deadlineMs: 1_100 })
  const response = await fetch(`http://localhost:${port}/a`, { method: 'POST', body: 'BODY' })
  expect(await response.text()).toBe('ok')
  expect(taken).toEqual([1_500])
  // One connection, made once and kept, on which the request was sent once.
  expect(received).toHaveLength(1)
  expect(received[0]?.match(/POST \/a HTTP/g)).toHaveLength(1)
  expect(received[0]?.endsWith('BODY')).toBe(true)
})

test('a machine that sleeps while it connects writes nothing under its old grant, and requests another', async () => {
  const clock = handClock()
  let wallMs = 1_800_000_000_000
  clock.wallMs = () => wallMs
  const { port, received } = await tcpServer((text) => (text === '' ? undefined : ok))
  const own = { deadlineMs: clock.nowMs + 100, requestedAt: readMoment(clock) }
  const unused: (Grant | undefined)[] = []
  const take = async (_: AbortSignal, _beforeWait: unknown, back?: Grant) => {
    unused.push(back)
    expect(received.join('')).toBe('')
    return { deadlineMs: clock.nowMs + 100, requestedAt: readMoment(clock) }
  }
  // The monotonic clock stands still meanwhile.
  const asleep = {
    ...clock,
    get nowMs() {
      return wallMs
    },
    set nowMs(ms: number) {
      wallMs = ms
    },
  } as HandClock
  const { fetch } = setup({ clock, agent: slowAgent(asleep, 3_600_000), grants: { own, take } })
  const response = await fetch(`http://localhost:${port}/a`, { method: 'POST', body: 'BODY' })
  expect(await response.text()).toBe('ok')
  expect(unused).toEqual([own])
  expect(received[0]?.match(/POST/g)).toHaveLength(1)
})

test('an attempt whose grants all expire sends nothing at all, and is returned', async () => {
  const clock = handClock()
  const { port, received } = await tcpServer(answerEach)
  const unused: (Grant | undefined)[] = []
  const expired = {
    take: async (_: AbortSignal, _beforeWait: unknown, back?: Grant) => {
      unused.push(back)
      return { deadlineMs: clock.monotonicMs() }
    },
    giveBack: async (back: Grant) => void unused.push(back),
  }
  const { fetch } = setup({ clock, agent: slowAgent(clock, 500), deadlineMs: 1_100, grants: expired })
  await expect(fetch(`http://localhost:${port}/`, { method: 'POST', body: 'BODY' })).rejects.toMatchObject({
    code: 'SLUICE_GRANT_STALE',
    retryable: true,
    message: expect.stringContaining(`${maxStaleGrants} grants`),
  })
  expect(received.join('')).toBe('')
  // Each expired grant is refunded when the next is taken, and the last one at the end.
  expect(unused[0]).toEqual({ deadlineMs: 1_100 })
  expect(unused).toHaveLength(maxStaleGrants)
  expect(new Set(unused).size).toBe(maxStaleGrants)
  expect(unused).not.toContain(undefined)
})

test('a connection that closes while the request waits for its grant is renewed before the grant comes', async () => {
  const clock = handClock()
  const { sleep } = systemClock
  clock.sleep = (_, signal) => sleep(5, signal)
  const { port, received, sockets } = await tcpServer(answerEach)
  const grants = {
    take: async () => {
      await until(() => sockets.size > 0)
      const count = received.length
      if (count === 1) {
        for (const socket of sockets) socket.destroy()
        // No request was made since: only keeping warm connects here.
        await until(() => received.length > count)
      }
      return { deadlineMs: clock.nowMs + 100 }
    },
  }
  const { fetch } = setup({ clock, agent: slowAgent(clock, 500), deadlineMs: 1_100, grants })
  const response = await fetch(`http://localhost:${port}/`, { method: 'POST', body: 'BODY' })
  expect(await response.text()).toBe('ok')
  expect(received[0]).toBe('')
  expect(received.filter((text) => text !== '')).toHaveLength(1)
})

test('a used connection is checked as well, and stays open', async () => {
  const clock = handClock()
  const { port, received } = await tcpServer(answerEach)
  const deadlines = [{ deadlineMs: 1_000 }, { deadlineMs: 5_000 }]
  const agent = oneConnection()
  const { fetch } = setup({ clock, agent, deadlineMs: 2_000, grants: { take: async () => deadlines.shift() } })
  const url = `http://127.0.0.1:${port}/`
  await (await fetch(url)).text()
  await (await fetch(url)).text()
  expect(deadlines).toEqual([])
  expect(received).toHaveLength(1)
  expect(received[0]?.match(/GET/g)).toHaveLength(2)
})

test('a job without limits is never too old to send', async () => {
  const clock = handClock()
  const { port } = await tcpServer(answerEach)
  const { fetch, taken } = setup({ clock, agent: slowAgent(clock, 1e9) })
  expect((await fetch(`http://localhost:${port}/`)).status).toBe(200)
  expect(taken).toEqual([])
})

test('a connection that breaks after the request was written gives a network error, not a silent second request', async () => {
  const { port, received } = await tcpServer((text, socket) => {
    if (text.split('GET').length === 2) return ok
    socket.destroy()
    return undefined
  })
  const { fetch, taken } = setup({ agent: oneConnection(), deadlineMs: 2_000 })
  const url = `http://127.0.0.1:${port}/`
  await (await fetch(url)).text()
  await expect(fetch(url)).rejects.toMatchObject({
    code: 'SLUICE_NETWORK',
    retryable: true,
    cause: { code: 'UND_ERR_SOCKET' },
  })
  expect(taken).toHaveLength(1)
  expect(received.join('').match(/GET/g)).toHaveLength(2)
})

test('a request that was written is not written again on another connection by the HTTP library', async () => {
  // Two requests on one connection, of which the vendor answers the first and closes: undici treats the second as unsent.
  const pipelining = new Agent({ connections: 1, pipelining: 2 })
  const unblocked = pipelining.compose(
    (dispatch) => (options, handler) => dispatch({ ...options, blocking: false }, handler),
  )
  const agent = Object.assign(unblocked, { guard: new Guard(['127.0.0.1']) }) as unknown as GuardedAgent
  const { port, received } = await tcpServer((text) => {
    const count = text.split('GET').length - 1
    if (count === 1) return text.includes('/warm') ? ok : undefined
    return count === 3 ? 'HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok' : undefined
  })
  const { fetch } = setup({ agent, deadlineMs: 2_000 })
  const url = `http://127.0.0.1:${port}`
  await (await fetch(`${url}/warm`)).text()
  const [first, second] = await Promise.allSettled([fetch(`${url}/1`), fetch(`${url}/2`)])
  expect(first).toMatchObject({ status: 'fulfilled' })
  expect(second).toMatchObject({ status: 'rejected', reason: { code: 'SLUICE_NETWORK' } })
  expect(received.join('').match(/GET \/2/g)).toHaveLength(1)
})

test('a grant is notified once of the end of a request written under it, and of no other request', async () => {
  const clock = handClock()
  const { port } = await tcpServer((text, socket) => {
    if (!text.includes('/cut')) return answerEach(text)
    socket.destroy()
    return undefined
  })
  const ends: string[] = []
  const named = (name: string, deadlineMs: number) => ({ deadlineMs, ended: () => void ends.push(name) })
  const grants = { own: named('too old', 1_100), take: async () => named('in time', clock.nowMs + 100) }
  const { fetch } = setup({ clock, agent: slowAgent(clock, 500), grants })
  const url = `http://localhost:${port}`
  await (await fetch(`${url}/`, { method: 'POST', body: 'BODY' })).text()
  expect(ends).toEqual(['in time'])
  await expect(fetch(`${url}/cut`)).rejects.toMatchObject({ code: 'SLUICE_NETWORK' })
  expect(ends).toEqual(['in time', 'in time'])
  await expect(fetch('http://127.0.0.1:1025/')).rejects.toMatchObject({ code: 'SLUICE_NETWORK' })
  expect(ends).toEqual(['in time', 'in time'])
})

test('a repeat that the standard demands after a 421 takes a grant of its own', async () => {
  const answers = ['HTTP/1.1 421 Misdirected\r\ncontent-length: 0\r\n\r\n', ok]
  const { port, received } = await tcpServer((text) => (text.endsWith('BODY') ? answers.shift() : undefined))
  const { fetch, taken } = setup({ deadlineMs: 2_000 })
  const response = await fetch(`http://127.0.0.1:${port}/`, { method: 'POST', body: 'BODY' })
  expect(response.status).toBe(200)
  expect(received.join('').match(/POST/g)).toHaveLength(2)
  expect(taken).toHaveLength(1)
})

test('a 421 whose further grant fails rejects with the reason', async () => {
  const { port } = await tcpServer(() => 'HTTP/1.1 421 Misdirected\r\ncontent-length: 0\r\n\r\n')
  const { fetch } = setup({ deadlineMs: 2_000, grants: { take: () => Promise.reject(new Error('store away')) } })
  await expect(fetch(`http://127.0.0.1:${port}/`)).rejects.toMatchObject({
    code: 'SLUICE_NETWORK',
    cause: { message: 'store away' },
  })
})

/** The way of a request that is overdue after 20 ms, and the calls of it. */
