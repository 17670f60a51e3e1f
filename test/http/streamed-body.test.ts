/** The check of a grant before the first part of a streamed body is written. */
import type { ReadableStreamDefaultController } from 'node:stream/web'
import { request } from 'undici'
import { expect, test } from 'vitest'
import { createSendCheck, type Grant } from '../../src/http/send-check.ts'
import { until } from '../until.ts'
import { answerEach, handClock, ok, oneConnection, setup, slowAgent, tcpServer } from './bench.ts'

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

test('a stream that is slow to begin sends no byte after the deadline, and gives its grant back', async () => {
  const clock = handClock()
  const { port, received } = await tcpServer(answerEach)
  const back: (Grant & { hasEnded?: boolean })[] = []
  const giveBack = async (unused: Grant) => void back.push(unused)
  const grantUntil = (deadlineMs: number) => ({
    deadlineMs,
    hasEnded: false,
    ended() {
      this.hasEnded = true
    },
  })
  async function* late() {
    clock.nowMs += 200
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
    const { fetch } = setup({ clock, grants: { own: grantUntil(clock.nowMs + 100), giveBack } })
    await expect(
      fetch(`http://127.0.0.1:${port}/`, { method: 'POST', body: body as never, duplex: 'half' } as RequestInit),
    ).rejects.toMatchObject({ code: 'SLUICE_GRANT_STALE' })
  }
  expect(received.join('')).toBe('')
  expect(back).toMatchObject([{ hasEnded: false }, { hasEnded: false }])
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
  expect(check.unused()).toBeDefined()
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
