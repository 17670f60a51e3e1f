/** How long the way of a request takes, as it is measured from the check to the head of the answer. */
import { request } from 'undici'
import { expect, test } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { createSendCheck } from '../../src/http/send-check.ts'
import { until } from '../until.ts'
import { ok, oneConnection, tcpServer } from './bench.ts'

function slowWay() {
  const calls: ['answered' | 'overdue', number | undefined][] = []
  let asked = 0
  const way = {
    recordAnswer: (tookMs: number | undefined) => void calls.push(['answered', tookMs]),
    overdueMs: () => (calls.length === 0 && ++asked > 0 ? 20 : undefined),
    recordOverdue: (afterMs: number) => void calls.push(['overdue', afterMs]),
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
