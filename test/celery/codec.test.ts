import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { eventKey, readEvents, writeEvents } from '../../src/celery/event.ts'
import { isMeant, readReply, readRequest, writeReply, writeRequest } from '../../src/celery/control.ts'
import type { Carrier } from '../../src/celery/carrier.ts'
import { readJson, writeJson } from '../../src/celery/json.ts'
import { controlOver } from '../../src/celery/remote.ts'
import {
  CeleryTaskError,
  isFinal,
  readResult,
  resultKey,
  resultMessage,
  resultValue,
  writeResult,
} from '../../src/celery/result.ts'
import { readSignature, signature } from '../../src/celery/signature.ts'
import { blank, readTask, type TaskMessage, writeTask } from '../../src/celery/task-message.ts'
import { readTime, reprOf, writeTime } from '../../src/celery/time.ts'
import type { WireMessage } from '../../src/celery/wire.ts'
import { silent } from '../../src/core/log.ts'
import { firstGolden, golden, goldenRedis } from './golden.ts'
import { forAll, forAllInTime } from '../for-all.ts'

const nowMs = Date.UTC(2026, 0, 1)
const refused = { code: 'SLUICE_CELERY_MESSAGE' }
const parsed = (message: { body: Buffer }): unknown => JSON.parse(message.body.toString())

describe('a task of Celery', () => {
  it.each(['delay', 'unicode', 'empty', 'eta', 'options', 'link', 'chain', 'group'])(
    '"%s" is written again as Celery wrote it, byte by byte in its fields',
    async (name) => {
      for (const { message } of golden(name)) {
        const again = await writeTask(await readTask(message), { nowMs })
        expect({ ...again.headers, lang: 'py', kwargsrepr: '' }).toEqual({ ...message.headers, kwargsrepr: '' })
        expect(parsed(again)).toEqual(parsed(message))
        expect({ ...again, body: '', headers: '' }).toEqual({ ...message, body: '', headers: '' })
      }
    },
  )

  it('has its arguments, time limits, priority and the headers of its sender', async () => {
    expect(await readTask(firstGolden('options'))).toMatchObject({
      id: 'my-id',
      task: 'add',
      args: [1, 2],
      hardLimitS: 300,
      softLimitS: 240,
      priority: 7,
      ignoreResult: true,
      shadow: 'alias',
      headers: { mine: 'x' },
    })
  })

  it('keeps the microseconds of its times, and counts the expiry of the broker from now', async () => {
    const task = await readTask(firstGolden('countdown'))
    expect((task.expiresMs ?? 0) - (task.etaMs ?? 0)).toBeCloseTo(57_000, 0)
    const again = await writeTask(task, { nowMs: (task.expiresMs ?? 0) - 1_500 })
    expect(again.expiration).toBe('1500')
    expect(again.headers['eta']).toBe(firstGolden('countdown').headers['eta'])
  })

  it('carries a chain in the order in which it runs', async () => {
    const { chain, args } = await readTask(firstGolden('chain'))
    expect([args, ...chain.map((one) => one.args)]).toEqual([[1, 2], [3], [4]])
  })

  it('carries what follows a success and a failure', async () => {
    const { callbacks, errbacks } = await readTask(firstGolden('link'))
    expect(callbacks).toEqual([signature('add', [16])])
    expect(errbacks).toEqual([signature('echo', ['failed'], { immutable: true })])
  })

  it('is read when it is compressed as Celery does, and when we have compressed it', async () => {
    const task = await readTask(firstGolden('gzip'))
    expect(task.args).toEqual(['x'.repeat(100)])
    const again = await writeTask(task, { nowMs, compress: true })
    expect(again.headers['compression']).toBe('application/x-gzip')
    expect(again.body.length).toBeLessThan(100)
    expect((await readTask(again)).args).toEqual(task.args)
  })

  it('is read when its numbers are no JSON, without loss', async () => {
    expect((await readTask(firstGolden('numbers'))).args).toEqual([NaN, Infinity, -Infinity, 2n ** 60n, Infinity])
  })

  it('is read without counts that are no numbers', async () => {
    const body = Buffer.from('{"task": "add", "id": "a", "retries": Infinity, "timelimit": [Infinity, NaN]}')
    const read = await readTask({ ...firstGolden('version1'), body })
    expect(read).toMatchObject({ retries: 0, hardLimitS: undefined, softLimitS: undefined })
  })

  it('is read by protocol 1', async () => {
    expect(await readTask(firstGolden('version1'))).toMatchObject({
      task: 'add',
      args: [2, 3],
      hardLimitS: 9,
      etaMs: Date.UTC(2030, 0, 2, 3, 4, 5, 123),
    })
  })

  it.each([
    ['pickle', /application\/x-python-serialize.*task_serializer = "json"/],
    ['bzip2', /application\/x-bz2.*task_compression = "gzip"/],
  ])('is refused, with the reason, if it is %s', async (name, why) => {
    const refusal = Promise.resolve().then(() => readTask(firstGolden(name)))
    await expect(refusal).rejects.toMatchObject(refused)
    await expect(refusal).rejects.toThrow(why)
  })

  it('is read with the chord to which it belongs, by who counts its members, and refused by others', async () => {
    const message = firstGolden('chord')
    const chord = { chord: { task: expect.any(String) }, groupId: expect.any(String), groupIndex: 0 }
    expect(await readTask(message, { chords: true })).toMatchObject(chord)
    expect(() => readTask(message)).toThrow(
      expect.objectContaining({ ...refused, message: expect.stringContaining('chord') }),
    )
  })

  it('is read soon, though chords are inside of the chords that follow it', () => {
    let reads = 0
    const single = { task: 'add', args: [], kwargs: {}, options: {}, subtask_type: null, immutable: false }
    const nest = (depth: number): object => {
      const body = depth === 0 ? single : nest(depth - 1)
      const kwargs = {
        header: [single, single, single],
        get body() {
          if (++reads > 10_000) throw new Error('it is read again and again')
          return body
        },
      }
      return { ...single, task: 'celery.chord', subtask_type: 'chord', kwargs }
    }
    expect(readSignature(nest(30))).toMatchObject({ subtask_type: 'chord' })
  })

  it('is refused whatever else it is', async () => {
    const message = firstGolden('delay')
    await forAllInTime(
      fc.oneof(fc.json(), fc.string()),
      fc.dictionary(fc.string(), fc.jsonValue()),
      async (text, more) => {
        const odd = { ...message, headers: { ...message.headers, ...more }, body: Buffer.from(text) }
        const read = await Promise.resolve()
          .then(() => readTask(odd))
          .catch((error: unknown) => error)
        if ((read as TaskMessage).task === undefined) expect(read).toMatchObject(refused)
      },
    )
    const bomb = { ...message, headers: { ...message.headers, compression: 'application/x-gzip' } }
    await expect(readTask(bomb)).rejects.toMatchObject(refused)
  })

  it('shows when it is a retry of its own', async () => {
    const sent = golden('rpc retry').filter(({ message }) => message.headers['task'] === 'again')
    const tries = await Promise.all(sent.map(async ({ message }) => readTask(message)))
    expect(tries.map(({ retries }) => retries)).toEqual([0, 1, 2])
    expect(tries.slice(1).every(({ etaMs }) => etaMs !== undefined)).toBe(true)
  })

  it('loses what the broker noted of its way, and keeps everything else, when it is sent again', async () => {
    const name = fc.string({ minLength: 1 })
    // A number beyond 2^53 comes back as a bigint.
    const value = fc.jsonValue().filter((one) => !/\d{16}/.test(JSON.stringify(one)))
    const following = fc.array(fc.record({ task: name, args: fc.array(value) }), { maxLength: 3 })
    const sent = fc.record({
      id: name,
      task: name,
      args: fc.array(value),
      retries: fc.nat(),
      etaMs: fc.option(fc.integer({ min: 0, max: 4e12 }), { nil: undefined }),
      callbacks: following.map((all) => all.map((one) => signature(one.task, one.args))),
      chain: following.map((all) => all.map((one) => signature(one.task, one.args))),
      ignoreResult: fc.boolean(),
    })
    await forAllInTime(sent, fc.boolean(), async (some, compress) => {
      const task: TaskMessage = { ...blank, rootId: some.id, ...some, headers: { mine: 1 } }
      const wire = await writeTask({ ...task, headers: { mine: 1, 'x-death': [] } }, { nowMs, compress })
      expect(await readTask(wire)).toEqual({ ...task, ...(JSON.parse(JSON.stringify(task)) as object) })
    })
  })
})

describe('a result', () => {
  it('over rpc is that of Celery, and is written as Celery writes it', async () => {
    const [started, done] = await results('rpc success', 2)
    expect(started).toMatchObject({ state: 'STARTED', value: { hostname: expect.any(String) } })
    expect(done?.state).toBe('SUCCESS')
    const own = golden('rpc success')
      .filter(({ exchange, message }) => exchange === '' && !('task' in message.headers))
      .filter(({ message }) => !message.body.includes('NaN'))
    for (const { message } of own) {
      const again = resultMessage(readResult(message.body.toString()))
      expect(again).toMatchObject({ correlationId: message.correlationId, deliveryMode: 1 })
      expect(parsed(again)).toEqual({ ...(parsed(message) as object), children: [] })
    }
  })

  it('in Redis is that of Celery, and is written as Celery writes it', () => {
    const keys = Object.keys(goldenRedis).filter((one) => one.startsWith('celery-task-meta-'))
    const texts = keys.flatMap((key) => goldenRedis[key] ?? [])
    expect(texts.length).toBeGreaterThan(5)
    for (const text of texts) {
      const result = readResult(text)
      expect(keys).toContain(resultKey(result.id))
      const { date_done, group_id, parent_id } = JSON.parse(text) as Record<string, unknown>
      const more = Object.entries({ date_done, group_id, parent_id }).filter(([, value]) => value !== undefined)
      const again: unknown = JSON.parse(writeResult(result, Object.fromEntries(more)))
      expect(again).toEqual({ ...(JSON.parse(text) as object), children: [] })
    }
  })

  it('has the states of a retry, and then the error', async () => {
    const states = (await results('rpc retry')).map(({ state }) => state)
    expect(states).toEqual(['STARTED', 'RETRY', 'STARTED', 'RETRY', 'STARTED', 'FAILURE'])
    expect(states.map(isFinal).indexOf(true)).toBe(5)
  })

  it.each([
    [
      'rpc value error',
      'SLUICE_CELERY_FAILED',
      'ValueError',
      'builtins',
      ['boom', 1],
      /failed with ValueError: boom, 1$/,
    ],
    ['rpc key error', 'SLUICE_CELERY_FAILED', 'KeyError', 'builtins', ['gone'], /KeyError: gone$/],
    ['rpc own error', 'SLUICE_CELERY_FAILED', 'app_with.<locals>.OutOfLuck', '__main__', ['seven', 7], /OutOfLuck/],
    ['rpc expired', 'SLUICE_CELERY_REVOKED', 'TaskRevokedError', 'celery.exceptions', ['expired'], /revoked/],
  ])('of "%s" throws an error with type, module and arguments', async (name, code, type, module, args, message) => {
    const last = (await results(name)).at(-1)
    const act = () => resultValue(last ?? { id: '', state: 'PENDING', value: 0, traceback: undefined })
    expect(act).toThrow(CeleryTaskError)
    expect(act).toThrow(expect.objectContaining({ code, type, module, args, message: expect.stringMatching(message) }))
  })

  it('of a failure always has what Python needs to raise an error', () => {
    const failure = (value: unknown) =>
      (JSON.parse(writeResult({ id: 'a', state: 'FAILURE', value, traceback: undefined })) as { result: unknown })
        .result
    for (const value of [new TypeError('no'), 'text', null, { odd: true }, undefined])
      expect(failure(value)).toEqual({
        exc_type: expect.any(String),
        exc_message: [expect.any(String)],
        exc_module: 'sluice.errors',
      })
    expect(failure(new TypeError('no'))).toMatchObject({ exc_type: 'TypeError', exc_message: ['no'] })
  })

  it('that is none, or without an error, is named or still throws one', () => {
    for (const text of ['', '[]', '{}', '{"task_id": 1}'])
      expect(() => readResult(text)).toThrow(expect.objectContaining(refused))
    const nameless = readResult('{"task_id": "a", "status": "FAILURE", "result": null}')
    expect(() => resultValue(nameless)).toThrow(expect.objectContaining({ type: 'Exception', args: [] }))
  })
})

describe('remote control', () => {
  it.each([
    [{ destination: ['a@h', 'b@h'] }, true],
    [{ destination: ['b@h'] }, false],
    [{}, true],
    [{ pattern: { text: 'a@*', matcher: 'glob' } }, true],
    [{ pattern: { text: '?@h', matcher: 'glob' } }, true],
    [{ pattern: { text: '[!b]@h', matcher: 'glob' } }, true],
    [{ pattern: { text: '[b]@h', matcher: 'glob' } }, false],
    [{ pattern: { text: 'a', matcher: 'glob' } }, false],
    [{ pattern: { text: 'a', matcher: 'pcre' } }, true],
    [{ pattern: { text: '.@(h|i)$', matcher: 'pcre' } }, true],
    [{ pattern: { text: '(', matcher: 'pcre' } }, false],
  ])('%o is for a@h: %s', (to, is) => {
    const rest = { method: 'ping', arguments: {}, destination: undefined, ticket: undefined, replyTo: undefined }
    expect(isMeant({ ...rest, ...to }, 'a@h')).toBe(is)
  })

  it.each(['ping', 'inspect', 'rate_limit', 'revoke', 'no such command'])(
    '"%s": request and reply are read, and written as Celery writes them',
    async (name) => {
      for (const { exchange, message } of golden(name)) {
        const { clock } = message.headers as { clock: number }
        if (exchange === 'celery.pidbox') {
          const request = await readRequest(message)
          const again = writeRequest(request, { clock, expiresS: message.headers['expires'] as number })
          expect(again).toMatchObject({ headers: message.headers, deliveryMode: 2 })
          expect(parsed(again)).toEqual(parsed(message))
        } else {
          const reply = await readReply(message)
          const [[worker, value] = ['', undefined]] = Object.entries(reply.workers)
          const again = writeReply(worker, value, { ticket: reply.ticket ?? '', clock })
          expect(again).toMatchObject({ headers: message.headers, deliveryMode: 1 })
          expect(parsed(again)).toEqual(parsed(message))
        }
      }
    },
  )
})

it('a request to workers has a later time than the replies before it, and none of them makes it endless', async () => {
  const clocks: unknown[] = []
  let reply: (message: WireMessage) => unknown = () => {}
  const carrier: Carrier = {
    publish: async () => {},
    broadcast: async ({ headers }) => void clocks.push(headers['clock']),
    receive: async (_, onMessage) => {
      reply = onMessage
      return async () => {}
    },
    close: async () => {},
  }
  const control = await controlOver(carrier, silent)
  for (const clock of [7, Infinity, -1]) {
    await reply(writeReply('a@h', {}, { ticket: 't', clock }))
    await control.request('ping', {}, { within: 0 })
  }
  expect(clocks).toEqual([8, 9, 10])
})

describe('events', () => {
  it('are read, and written as Celery writes them, one by one or as a list', async () => {
    const recorded = golden('rpc success').filter(({ exchange }) => exchange === 'celeryev')
    expect(recorded.length).toBeGreaterThan(10)
    for (const { key, message } of recorded) {
      const events = await readEvents(message)
      const again = writeEvents(events)
      expect([eventKey(events), again.headers, again.deliveryMode]).toEqual([key, message.headers, 1])
      expect({ ...(parsed(again) as object), timestamp: 0 }).toEqual({ ...(parsed(message) as object), timestamp: 0 })
    }
    const several = (await Promise.all(recorded.map(({ message }) => readEvents(message)))).flat()
    expect(eventKey(several)).toBe('task.multi')
    expect(await readEvents(writeEvents(several))).toEqual(several)
    await expect(readEvents({ ...firstGolden('delay'), body: Buffer.from('[1]') })).rejects.toMatchObject(refused)
  })
})

describe('what Python writes', () => {
  it('is read as JSON.parse reads it, and beyond', () => {
    forAll(fc.json(), (text) => {
      expect(JSON.parse(writeJson(readJson(text), 'it'))).toEqual(JSON.parse(text))
    })
    expect(
      readJson('{"a": "NaN \\" Infinity 12345678901234567890", "b": [NaN, -12345678901234567890, 1234567890.5]}'),
    ).toEqual({ a: 'NaN " Infinity 12345678901234567890', b: [NaN, -12345678901234567890n, 1234567890.5] })
    // Each quotation mark, tried as the beginning of a string, would take hours.
    for (const end of ['', '\\']) expect(() => readJson(`[NaN, "${'\\"'.repeat(300_000)}${end}`)).toThrow(SyntaxError)
    const typed = (type: string, value: unknown) => readJson(JSON.stringify({ __type__: type, __value__: value }))
    expect(typed('datetime', '2030-01-02T03:04:05+00:00')).toBe('2030-01-02T03:04:05+00:00')
    expect(typed('uuid', { hex: '5c05c70e0047432fb962b6286e757c71' })).toBe('5c05c70e-0047-432f-b962-b6286e757c71')
    expect(typed('unknown', 1)).toEqual({ __type__: 'unknown', __value__: 1 })
    expect(readJson('{"bytes": "YQ==", "__base64__": true}')).toEqual(Buffer.from('a'))
  })

  it('cannot be had of every value', () => {
    const cycle: unknown[] = []
    cycle.push(cycle)
    for (const value of [NaN, Infinity, () => 1, Symbol('a'), cycle])
      expect(() => writeJson([value], 'it')).toThrow(expect.objectContaining({ code: 'SLUICE_BAD_PAYLOAD' }))
  })

  it('has times with six digits and an offset, and is read with any', () => {
    expect(writeTime(nowMs + 123.456)).toBe('2026-01-01T00:00:00.123456+00:00')
    for (const text of ['2026-01-01T00:00:00.999Z', '2026-01-01T00:00:00.999000', '2026-01-01T01:30:00.999+0130'])
      expect(readTime(text)).toBe(nowMs + 999)
    for (const text of ['2026-11-28 10:00', '2026-11-28T10:00Z', '2026-11-28T12:00+02:00'])
      expect(readTime(text)).toBe(Date.UTC(2026, 10, 28, 10))
    expect(readTime('2026-11-28')).toBe(Date.UTC(2026, 10, 28))
    for (const text of ['', 'soon', '2026-13-01T00:00:00', '2026-11-28T', '2026-11-28T10'])
      expect(readTime(text)).toBeUndefined()
    forAll(fc.integer({ min: 0, max: 4e12 }), (ms) => {
      expect(readTime(writeTime(ms))).toBe(ms)
    })
  })

  it('describes arguments as Python does, at most 1,024 characters', () => {
    expect(reprOf([1, 'a\'b"', null, true, [{ a: 1.5 }]], true)).toBe(`(1, 'a\\'b"', None, True, [{'a': 1.5}])`)
    expect(reprOf([2], true)).toBe('(2,)')
    forAll(fc.jsonValue(), (value) => {
      expect(reprOf(value).length).toBeLessThanOrEqual(1_024)
    })
    expect(reprOf(['x'.repeat(5_000)], true)).toHaveLength(1_024)
    for (const nest of [(inner: unknown) => [inner], (inner: unknown) => ({ a: inner })])
      expect(reprOf(Array.from({ length: 50_000 }).reduce<unknown>(nest, 1)).length).toBeLessThanOrEqual(1_024)
  })
})

/** The results that went over rpc, of the task that was sent under this name. */
async function results(name: string, most = Infinity) {
  const sent = golden(name)
  const id = sent.find(({ message }) => 'task' in message.headers)?.message.correlationId
  const isOwn = ({ exchange, message }: (typeof sent)[number]) =>
    exchange === '' && !('task' in message.headers) && message.correlationId === id
  return sent
    .filter(isOwn)
    .slice(0, most)
    .map(({ message }) => readResult(message.body.toString()))
}
