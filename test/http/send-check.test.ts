import { lookup } from 'node:dns'
import type { LookupFunction } from 'node:net'
import type { ReadableStreamDefaultController } from 'node:stream/web'
import { Agent, request } from 'undici'
import { expect, test } from 'vitest'
import { readMoment, systemClock } from '../../src/core/clock.ts'
import { createAgent, type GuardedAgent } from '../../src/http/agent.ts'
import { maxStaleGrants } from '../../src/http/fetch.ts'
import { Guard } from '../../src/http/guard.ts'
import { createSendCheck, type Grant } from '../../src/http/send-check.ts'
import { until } from '../until.ts'
import { handClock, setup, tcpServer } from './bench.ts'
import type { HandClock } from './bench.ts'

const ok = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok'
const answerEach = (received: string) => (received.endsWith('\r\n\r\n') || received.endsWith('BODY') ? ok : undefined)

/** An agent whose connections take `connectMs` of the test clock's time, because the name look-up is that slow. */
function slowAgent(clock: HandClock, connectMs: number) {
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

/** Every request on the same connection. */
function oneConnection(): GuardedAgent {
  return Object.assign(new Agent({ connections: 1 }), { guard: new Guard(['127.0.0.1']) })
}

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
  const own = { deadlineMs: clock.nowMs + 100, asked: readMoment(clock) }
  const unused: (Grant | undefined)[] = []
  const take = async (_: AbortSignal, _beforeWait: unknown, back?: Grant) => {
    unused.push(back)
    expect(received.join('')).toBe('')
    return { deadlineMs: clock.nowMs + 100, asked: readMoment(clock) }
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

test('a stream whose grant expires while connecting is not read, and is sent whole under the next one', async () => {
  const clock = handClock()
  const { port, received } = await tcpServer((text) => (text.endsWith('0\r\n\r\n') ? ok : undefined))
  async function* generated() {
    yield Buffer.from('BODY')
  }
  for (const body of [new Blob(['BODY']).stream(), generated()]) {
    const unused: (Grant | undefined)[] = []
    const take = async (_: AbortSignal, _beforeWait: unknown, back?: Grant) => {
      unused.push(back)
      return { deadlineMs: clock.nowMs + 100 }
    }
    const own = { deadlineMs: clock.nowMs + 100 }
    const { fetch } = setup({ clock, agent: slowAgent(clock, 500), grants: { own, take } })
    const response = await fetch(`http://localhost:${port}/`, {
      method: 'POST',
      body: body as never,
      duplex: 'half',
    } as RequestInit)
    expect(await response.text()).toBe('ok')
    expect(unused).toEqual([own])
    expect(received.pop()?.match(/BODY/g)).toHaveLength(1)
    expect(received.join('')).toBe('')
  }
})

test('a stream that is slow to begin sends no byte after the deadline', async () => {
  const clock = handClock()
  const { port, received } = await tcpServer(answerEach)
  const { fetch } = setup({ clock, deadlineMs: 1_100 })
  async function* late() {
    clock.nowMs = 1_200
    yield Buffer.from('BODY')
  }
  const source = {
    pull(controller: ReadableStreamDefaultController) {
      clock.nowMs = 9_000
      controller.close()
    },
  }
  // Nothing is read from the source before its reader reads.
  const empty = new ReadableStream(source, { highWaterMark: 0 })
  for (const body of [late(), empty]) {
    await expect(
      fetch(`http://127.0.0.1:${port}/`, { method: 'POST', body: body as never, duplex: 'half' } as RequestInit),
    ).rejects.toMatchObject({ code: 'SLUICE_GRANT_STALE' })
  }
  expect(received.join('')).toBe('')
})

test('the source of a stream that is given up is closed', async () => {
  const clock = handClock()
  const { port } = await tcpServer(answerEach)
  let isClosed = false
  async function* late() {
    try {
      clock.nowMs += 200
      yield Buffer.from('BODY')
    } finally {
      isClosed = true
    }
  }
  const grant = { deadlineMs: clock.nowMs + 100 }
  const check = createSendCheck({ agent: oneConnection(), clock, grant, bytes: undefined, take: async () => grant })
  const { dispatcher } = check
  await expect(
    request(`http://127.0.0.1:${port}/`, { dispatcher, method: 'POST', body: late() as never }),
  ).rejects.toThrow('the grant ran out')
  expect(check.stale()).toBe(true)
  await until(() => isClosed, 'it is closed')
})

test('a stream does not begin under a grant that has expired already', async () => {
  const clock = handClock()
  const { port, received } = await tcpServer((text) => (text.endsWith('0\r\n\r\n') ? ok : undefined))
  const { fetch, taken } = setup({ clock, deadlineMs: 900 })
  async function* body() {
    yield Buffer.from('BODY')
  }
  const response = await fetch(`http://127.0.0.1:${port}/`, {
    method: 'POST',
    body: body() as never,
    duplex: 'half',
  } as RequestInit)
  expect(await response.text()).toBe('ok')
  expect(taken).toHaveLength(1)
  expect(received[0]).toContain('BODY')
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
function slowWay() {
  const calls: ['answered' | 'overdue', number | undefined][] = []
  let asked = 0
  const way = {
    answered: (tookMs: number | undefined) => void calls.push(['answered', tookMs]),
    overdueMs: () => (calls.length === 0 && ++asked > 0 ? 20 : undefined),
    overdue: (afterMs: number) => void calls.push(['overdue', afterMs]),
  }
  const check = (bytes?: Buffer) =>
    createSendCheck({
      agent: oneConnection(),
      clock: systemClock,
      grant: { deadlineMs: systemClock.monotonicMs() + 60_000, way },
      bytes,
      take: async () => undefined,
    }).dispatcher
  return { calls, times: () => asked, check }
}

test('a request is overdue once, and answered, or failed, all the same', async () => {
  for (const answer of [ok, undefined]) {
    const { port, received, sockets } = await tcpServer(() => undefined)
    const { calls, check } = slowWay()
    const asking = request(`http://127.0.0.1:${port}/`, { dispatcher: check(), body: null }).then(
      ({ body }) => body.text(),
      () => undefined,
    )
    await until(() => calls.length === 1, 'it is overdue')
    expect(calls[0]?.[1]).toBeGreaterThan(15)
    expect(received).toHaveLength(1)
    for (const socket of sockets) {
      if (answer === undefined) socket.destroy()
      else socket.write(answer)
    }
    expect(await asking).toBe(answer && 'ok')
    expect(calls.map(([what, ms]) => [what, ms !== undefined])).toEqual([
      ['overdue', true],
      ['answered', answer !== undefined],
    ])
  }
})

test('a request is not answered by what precedes an answer, which a proxy may send before the request arrives', async () => {
  const { port, sockets } = await tcpServer(() => 'HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n')
  const { calls, check } = slowWay()
  const asking = request(`http://127.0.0.1:${port}/`, { dispatcher: check(), body: null })
  await until(() => calls.length === 1, 'it is overdue')
  for (const socket of sockets) socket.write(ok)
  expect(await (await asking).body.text()).toBe('ok')
  expect(calls.map(([what]) => what)).toEqual(['overdue', 'answered'])
})

test('the way of a request with a streamed body begins with the first part of the body, which the head waits for', async () => {
  const { port, received } = await tcpServer((text) => (text.endsWith('0\r\n\r\n') ? ok : undefined))
  const { times, check } = slowWay()
  const asked: number[] = []
  async function* body() {
    asked.push(times())
    yield Buffer.from('BODY')
  }
  const answer = await request(`http://127.0.0.1:${port}/`, {
    dispatcher: check(),
    method: 'POST',
    body: body() as never,
  })
  expect(await answer.body.text()).toBe('ok')
  expect(received.join('')).toContain('BODY')
  expect([...asked, times()]).toEqual([0, 1])
})
