import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, beforeEach, expect, it, vi } from 'vitest'
import { z } from 'zod'
import { systemClock } from '../../src/core/clock.ts'
import { sqlOn, type Store, storeOn } from '../../src/db/store.ts'
import type { AlarmOptions } from '../../src/fleet/alarm-kinds.ts'
import { Alarms } from '../../src/fleet/alarms.ts'
import { event, limit, Sluice, task } from '../../src/index.ts'
import type { SluiceEvents } from '../../src/report/events.ts'
import { Report } from '../../src/report/report.ts'
import { defineLimit } from '../../src/claim/definitions/define.ts'
import { claim, empty, endOverdue, enter, ownClock } from '../claim/engine.ts'
import { keptLog, SteppedClock } from '../report/stage.ts'
import { freshDatabase } from '../servers/database.ts'
import { copies } from '../rows.ts'
import { until } from '../until.ts'
import { addBucket, refuse } from '../limits/engine.ts'
import { createClasses, recountWaiting } from '../claim/engine-parts.ts'

const startMs = 1_700_000_000_000
let sluice: Sluice
let storeClock: { set(ms: number): Promise<void> }
let url: string

beforeAll(async () => {
  url = (await freshDatabase()).url
  sluice = await Sluice.open({ store: url })
  storeClock = await ownClock(sluice.db, startMs)
})
afterAll(() => sluice.close())
beforeEach(async () => {
  await empty(sluice.db)
  await sluice.db.query('delete from sluice.alarm')
  await storeClock.set(startMs)
})

/** A process that evaluates alarms; `at` moves its clock and the store's, and evaluates. */
function watcher(options: AlarmOptions) {
  const clock = new SteppedClock()
  const { lines, log } = keptLog()
  const report = new Report(clock, log)
  const alarms = new Alarms(storeOn(sluice.db, { clock, report }), options)
  const events: SluiceEvents['alarm'][] = []
  report.on('alarm', (event) => events.push(event))
  const told = () =>
    events
      .splice(0)
      .map(({ alarm, subject, isRaised }) => [alarm, subject, isRaised].filter((part) => part !== '').join(' '))
  let sinceMs = 0
  const at = async (ms: number) => {
    clock.advance(ms - sinceMs)
    sinceMs = ms
    await storeClock.set(startMs + ms)
    alarms.look()
    await alarms.check()
    return told()
  }
  return { alarms, report, lines, clock, at, events, told }
}

const slow = task('slow', { input: z.object({}), limits: [limit('once', { window: '1/h' })], run() {} })

it('a queue that grows raises an alarm once, which ends well below its bound, at most one change a minute', async () => {
  const one = watcher({ queueLength: 10, oldestWait: false, noWorker: false })
  const wait = async (n: number) => {
    await empty(sluice.db)
    await sluice.sendMany(slow, copies(n))
    await createClasses(sluice.db)
  }
  expect(await one.at(0)).toEqual([])
  await wait(12)
  expect(await one.at(20_000)).toEqual(['queue-length default true'])
  expect(one.lines.map(({ level, message }) => [level, message])).toEqual([
    [
      'warn',
      'alarm: queue "default" has 12 waiting jobs: look at what stops them (`sluice status`); if nothing does, start more workers',
    ],
  ])
  // Nine are fewer than the bound, and not few enough for the end of an alarm.
  await wait(9)
  expect(await one.at(100_000)).toEqual([])
  await wait(7)
  expect(await one.at(120_000)).toEqual(['queue-length default false'])
  expect(one.lines.at(-1)?.message).toBe('alarm over: queue "default" has 7 waiting jobs')
  // Back within the minute: the change waits until the minute is over.
  await wait(12)
  expect(await one.at(140_000)).toEqual([])
  expect(await one.at(179_000)).toEqual([])
  expect(await one.at(195_000)).toEqual(['queue-length default true'])
})

const cancelTagged = () => sluice.jobs.cancelMany({ tag: 'gone' })
it.each<[string, () => Promise<unknown>]>([
  ['cancelled', cancelTagged],
  ['given another priority, and cancelled', () => sluice.jobs.reprioritise({ tag: 'gone' }, 1).then(cancelTagged)],
  [
    'replaced, and cancelled',
    async () => {
      const options = { idempotencyKey: 'k', replace: true, tags: ['gone'] }
      for (let i = 0; i < 12; i++) await sluice.send(slow, {}, options)
      await cancelTagged()
    },
  ],
  [
    'expired',
    async () => {
      await storeClock.set(startMs + 99_000)
      await endOverdue(sluice.db)
    },
  ],
])('jobs of a queue that goes on, and that are %s, wait no more', async (_, leave) => {
  const one = watcher({ queueLength: 10, oldestWait: false, noWorker: false })
  const worker = await enter(sluice.db, ['slow'])
  await sluice.sendMany(slow, copies(5))
  await sluice.sendMany(slow, copies(12), { maxWait: '90s', tags: ['gone'] })
  // The claim absorbs what the senders have announced.
  expect((await claim(sluice.db, worker, ['slow'], 2)).jobs).toHaveLength(1)
  expect(await one.at(0)).toEqual(['queue-length default true'])
  await leave()
  await claim(sluice.db, worker, ['slow'], 2)
  await recountWaiting(sluice.db)
  expect(await one.at(100_000)).toEqual(['queue-length default false'])
  await claim(sluice.db, worker, ['slow'], 2)
  expect(await sluice.jobs.backlog()).toMatchObject({ jobs: [{ task: 'slow', waiting: 4 }] })
  expect(await one.at(200_000)).toEqual([])
})

it('of several processes that evaluate the store, one reports, and another one the end', async () => {
  const all = [1, 2, 3].map(() => watcher({ oldestWait: '10min', noWorker: false }))
  await sluice.send(slow, {})
  await createClasses(sluice.db)
  const reports = async (ms: number) => (await Promise.all(all.map((each) => each.at(ms)))).flat()
  expect(await reports(500_000)).toEqual([])
  expect(await reports(700_000)).toEqual(['oldest-wait default true'])
  await empty(sluice.db)
  expect(await reports(800_000)).toEqual(['oldest-wait default false'])
})

it('a job that no live worker can run raises an alarm until one can', async () => {
  const one = watcher({ oldestWait: false })
  await sluice.send(slow, {}, { queue: 'mail' })
  await createClasses(sluice.db)
  expect(await one.at(30_000)).toEqual([])
  expect(await one.at(61_000)).toEqual(['no-worker slow in mail true'])
  expect(one.lines.at(-1)?.message).toBe(
    'alarm: no live worker can run task slow in queue mail; a job has waited for 61 s: ' +
      'start a worker that has the task and serves the queue; `sluice tasks` lists who serves what',
  )
  const worker = `insert into sluice.worker (host, pid, version, queues, tasks, slots, started_at)
    values ('h', 1, '0', $1, array['slow'], 1, sluice.now())`
  await sluice.db.query(worker, [['other']])
  expect(await one.at(130_000)).toEqual([])
  await sluice.db.query(worker, [['mail']])
  expect(await one.at(150_000)).toEqual(['no-worker slow in mail false'])
})

it('a transaction that stays open raises an alarm, with the process to end', async () => {
  const { default: pg } = await import('pg')
  const client = new pg.Client(url)
  await client.connect()
  await client.query('begin isolation level repeatable read; select 1 from sluice.setting')
  const one = watcher({ snapshot: '20min' })
  // The transaction began by the server's own clock.
  const laterMs = systemClock.wallMs() - startMs
  expect(await one.at(laterMs + 60_000)).toEqual([])
  expect(await one.at(laterMs + 1_300_000)).toEqual(['snapshot true'])
  expect(one.lines.at(-1)?.message).toMatch(/^alarm: a transaction of 22 min \(process \d+\) keeps dead rows/)
  await client.end()
  await until(async () => (await one.at(laterMs + 1_400_000 + performance.now())).includes('snapshot false'), 'its end')
})

it('a store that is away raises an alarm in each process, after a while, and at most one change a minute', async () => {
  const one = watcher({})
  const lost = (isLost: boolean) => one.report.emit('connection', { to: 'store', isLost })
  const look = (ms: number) => {
    one.clock.advance(ms)
    one.alarms.look()
    return one.told()
  }
  lost(true)
  expect(look(9_000)).toEqual([])
  expect(look(2_000)).toEqual(['away store true'])
  lost(false)
  expect(look(1_000)).toEqual([])
  lost(true)
  expect(look(58_000)).toEqual([])
  lost(false)
  expect(look(1_000)).toEqual(['away store false'])
})

it('a worker sends each change to a webhook, and logs when that fails, without its address', async () => {
  const bodies: unknown[] = []
  const server = createServer((request, response) => {
    let text = ''
    request.on('data', (chunk) => (text += String(chunk)))
    request.on('end', () => {
      bodies.push(JSON.parse(text))
      response.writeHead(bodies.length > 1 ? 500 : 200).end()
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const webhook = `http://127.0.0.1:${(server.address() as AddressInfo).port}/services/T0/B0`
  const one = watcher({ webhook, queueLength: 1, oldestWait: false, noWorker: false })
  await sluice.send(slow, {})
  await createClasses(sluice.db)
  await one.at(0)
  await one.alarms.settled()
  expect(bodies).toEqual([
    {
      alarm: 'queue-length',
      subject: 'default',
      isRaised: true,
      value: 1,
      threshold: 1,
      text: expect.stringMatching(/^Sluice: queue "default" has 1 waiting job: look at what stops them/),
      todo: expect.stringMatching(/^look at what stops them/),
      at: expect.stringMatching(/Z$/),
    },
  ])
  await empty(sluice.db)
  await one.at(100_000)
  await one.alarms.settled()
  server.close()
  const failed = one.lines.find(({ message }) => message.startsWith('the webhook of alarms failed'))
  expect(failed).toMatchObject({ level: 'warn', details: { err: { message: 'it answered 500' } } })
  const nobody = watcher({ webhook, queueLength: 1, oldestWait: false, noWorker: false })
  await sluice.db.query('delete from sluice.alarm')
  await sluice.send(slow, {})
  await createClasses(sluice.db)
  await nobody.at(0)
  await nobody.alarms.settled()
  expect(JSON.stringify(nobody.lines)).toContain('the webhook of alarms failed')
  expect(JSON.stringify(nobody.lines)).not.toContain('T0')
})

it('values that cannot be read are not read again at each beat', async () => {
  const clock = new SteppedClock()
  let reads = 0
  const call = async (_name: string, args?: unknown) => {
    // The sums of budgets, from a time on.
    if (args !== undefined) return []
    reads++
    throw new Error('it takes too long')
  }
  const alarms = new Alarms({ ...storeOn(sluice.db, { clock }), call } as Store, {})
  await expect(alarms.check()).rejects.toThrow('too long')
  for (const seconds of [2, 2]) {
    clock.advance(seconds * 1_000)
    await alarms.check()
  }
  clock.advance(20_000)
  await expect(alarms.check()).rejects.toThrow('too long')
  expect(reads).toBe(2)
})

it('an alarm refuses options that mean nothing', () => {
  expect(() => watcher({ queueLengths: 5 } as AlarmOptions)).toThrow('`alarms` has no "queueLengths"')
  expect(() => watcher({ oldestWait: 0 })).toThrow('alarms.oldestWait is "0"; it must be more than 0, or false')
  expect(() => watcher({ webhook: 'slack' })).toThrow('must be an address that begins with https://')
})

it('a worker evaluates the alarms of its store, and its program hears them', async () => {
  const own = await Sluice.open({ store: (await freshDatabase()).url, alarms: { noWorker: 1 } })
  const heard = vi.fn<(event: SluiceEvents['alarm']) => void>()
  own.on('alarm', heard)
  await own.send(slow, {}, { queue: 'elsewhere' })
  await own.work([task('other', { input: z.object({}), run() {} })])
  await until(() => heard.mock.calls.length > 0, 'an alarm')
  expect(heard.mock.calls[0]?.[0]).toMatchObject({ alarm: 'no-worker', subject: 'slow in elsewhere', isRaised: true })
  await own.close()
})

it('deliveries of events that wait for another attempt raise an alarm, and end it when they are over', async () => {
  const one = watcher({ retries: 2 })
  const service = await Sluice.open({ store: url, service: 'retrying' })
  let isMended = false
  const handler = event('alarmed.event').on(
    () => {
      if (!isMended) throw new Error('not yet')
    },
    { retry: { base: '1h', max: '1h' } },
  )
  await service.dispatchOnce([handler])
  for (const n of [1, 2]) await service.events.emit(event('alarmed.event'), n)
  expect(await one.at(16_000)).toEqual([])
  await service.dispatchOnce([handler])
  expect(await one.at(32_000)).toEqual(['retries retrying true'])
  expect(one.lines.map(({ message }) => message)).toEqual([
    expect.stringContaining('service "retrying" has 2 events whose handling failed and is to be retried'),
  ])
  isMended = true
  await one.at(3_700_000)
  await service.dispatchOnce([handler])
  expect(await one.at(3_720_000)).toEqual(['retries retrying false'])
  await service.close()
})

it('a rejected credential raises an alarm at once, a vendor that is down after a minute; both end when it accepts', async () => {
  const one = watcher({})
  await defineLimit(sqlOn(sluice.db), limit('alarmed', { rate: '1/s', by: 'key' }))
  for (const [key, cause] of Object.entries({ a: 'credential', b: 'down', c: 'down' })) {
    await addBucket(sluice.db, 'alarmed', key)
    await refuse(sluice.db, [`alarmed:${key}`], { ageUs: 1, text: '401 from crm', cause, host: 'crm' })
  }
  expect(await one.at(16_000)).toEqual(['credential alarmed for a true'])
  expect(await one.at(62_000)).toEqual(['vendor-down alarmed true'])
  expect(one.lines.map(({ message }) => message)).toMatchInlineSnapshot(`
    [
      "alarm: the vendor has rejected the credential of limit alarmed for a for 16 s (401 from crm): correct the credential, then start its jobs by \`sluice limits reset alarmed --key a\`",
      "alarm: the vendor of limit alarmed has been down for 62 s (401 from crm, 2 keys): look at the vendor’s status page; its jobs wait, and go on by themselves when it is back",
    ]
  `)
  await sluice.limits.reset('alarmed')
  expect(await one.at(140_000)).toEqual(['credential alarmed for a false', 'vendor-down alarmed false'])
})

it('a vendor that refuses for long raises an alarm, with what it answers and until when; it ends when nothing is held', async () => {
  const one = watcher({})
  await defineLimit(sqlOn(sluice.db), limit('refusing', { rate: '1/s', by: 'key' }))
  for (const key of ['a', 'b']) {
    await addBucket(sluice.db, 'refusing', key)
    await refuse(sluice.db, [`refusing:${key}`], { waitUs: 3_600_000_000, ageUs: 1, text: '429 from crm' })
  }
  const minute = 60_000
  expect(await one.at(14 * minute)).toEqual([])
  expect(await one.at(16 * minute)).toEqual(['refused refusing true'])
  expect(one.lines.at(-1)?.message).toMatch(
    /the vendor of limit refusing has refused requests for 16 min \(429 from crm, 2 keys, held until 2023-11-14T23:13:20Z\).*limits show refusing.*limits reset refusing/,
  )
  expect(await one.at(64 * minute)).toEqual([])
  expect(await one.at(66 * minute)).toEqual(['refused refusing false'])
})
