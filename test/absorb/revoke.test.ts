/** A revocation that arrives while the store is away. */
import { expect, it } from 'vitest'
import { Absorber } from '../../src/absorb/absorber.ts'
import { noTraffic } from '../../src/amqp/traffic.ts'
import { writeRequest } from '../../src/celery/control.ts'
import type { WireMessage } from '../../src/celery/wire.ts'
import { systemClock } from '../../src/core/clock.ts'
import { StoreError } from '../../src/core/errors.ts'
import { logTo } from '../../src/core/log.ts'
import type { Db } from '../../src/db/db.ts'
import { storeOn } from '../../src/db/store.ts'
import { task } from '../../src/index.ts'
import { plain } from './stage.ts'

it('revocations are recorded as soon as the store is back, and answered then; the outage is logged once', async ({
  onTestFinished,
}) => {
  let isAway = true
  let pauses = 0
  const sleep = async () => {
    pauses++
    await new Promise((resolve) => setImmediate(resolve))
  }
  const logged: string[] = []
  const log = logTo((level, text) => logged.push(`${level}: ${text}`))
  const store = storeOn({} as Db, { clock: { ...systemClock, sleep }, log })
  const recorded: unknown[] = []
  store.run = async (name: string, args: readonly unknown[] = []) => {
    if (isAway) throw new StoreError('SLUICE_STORE_UNREACHABLE', 'away')
    if (name === 'absorb/revoke_calls') recorded.push(args)
    return []
  }
  let request: (message: WireMessage) => unknown = () => {}
  const replies: WireMessage[] = []
  const none = async () => {}
  const broker = {
    lowerFirst: false,
    traffic: noTraffic(),
    consume: async () => ({ stop: none }),
    send: none,
    reply: async (message: WireMessage) => void replies.push(message),
    announce: none,
    listen: async (on: typeof request) => void (request = on),
    close: none,
  }
  const absorber = new Absorber({
    store,
    broker,
    sender: {} as never,
    tasks: [task('note', { run: () => {} })],
    ...plain,
  })
  await absorber.start()
  onTestFinished(() => absorber.close())
  const revoke = (id: string, ticket: string) => {
    const about = { method: 'revoke', arguments: { task_id: id }, destination: undefined }
    return request(writeRequest({ ...about, ticket, replyTo: 'r' }, { clock: 1, expiresS: 0 }))
  }
  const obeyed = [revoke('a', 't'), revoke('b', 'u')]
  await expect.poll(() => pauses).toBeGreaterThan(20)
  expect(replies).toEqual([])
  isAway = false
  await Promise.all(obeyed)
  expect(recorded).toEqual([
    [['a'], false],
    [['b'], false],
  ])
  expect(replies).toHaveLength(2)
  expect(logged.filter((line) => line.includes('recorded'))).toEqual([
    expect.stringMatching(/^warn: what programs of Celery send or revoke cannot be recorded now/),
    expect.stringMatching(/^info: nothing that programs of Celery send or revoke waits/),
  ])
})
