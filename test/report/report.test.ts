import { runInNewContext } from 'node:vm'
import { expect, it, vi } from 'vitest'
import { hideValue } from '../../src/core/redact.ts'
import { writtenLog } from '../../src/report/format.ts'
import { logStyle, reportOf } from '../../src/report/options.ts'
import { Report } from '../../src/report/report.ts'
import { systemClock } from '../../src/core/clock.ts'
import { counted, keptLog, SteppedClock } from './stage.ts'

function stage(level?: 'warn') {
  const clock = new SteppedClock()
  const { lines, log } = keptLog()
  return { clock, lines, report: new Report(clock, log, level) }
}

const attempt = { task: 'sync', queue: 'default', worker: '7', tookMs: 5, retryInMs: 1_000 }

it('the log folds equal lines, and the counts of what is written add up', () => {
  const { clock, lines, report } = stage()
  let sent = 0
  const fail = (message: string) => {
    report.emit('failed', { ...attempt, job: `job-${++sent}`, attempt: 1, error: { message } })
  }
  for (let i = 0; i < 100; i++) fail(`/contacts/${i} answered 503`)
  // At once, because somebody may wait for it.
  expect(lines).toHaveLength(1)
  expect(lines[0]).toMatchObject({ level: 'warn', details: { task: 'sync', job: 'job-1', attempt: 1, worker: '7' } })
  clock.advance(1_000)
  expect(lines).toHaveLength(2)
  expect(lines[1]?.details).toMatchObject({ count: 99, task: 'sync', worker: '7' })
  expect(lines[1]?.details).not.toHaveProperty('job')
  for (let s = 0; s < 600; s++) {
    fail(`/contacts/${s} answered 503`)
    clock.advance(1_000)
  }
  report.end()
  expect(counted(lines)).toBe(sent)
  expect(lines.length).toBeLessThan(20)
  expect(clock.waiting).toBe(0)
})

it('the log keeps apart what differs, and writes a single line as it is', () => {
  const { clock, lines, report } = stage()
  const fail = (task: string, message: string) =>
    report.emit('failed', { ...attempt, task, job: 'j', attempt: 1, error: { message } })
  fail('sync', 'the vendor answered 503')
  fail('sync', 'the vendor answered 429')
  fail('mail', 'the vendor answered 503')
  fail('sync', 'no such customer')
  expect(lines).toHaveLength(4)
  fail('sync', 'no such customer')
  clock.advance(1_000)
  expect(lines).toHaveLength(5)
  expect(lines[4]).toEqual(lines[3])
})

it('the log forgets kinds of lines, so that no number of them fills the memory', () => {
  const { clock, lines, report } = stage()
  const words = Array.from({ length: 3_000 }, (_, i) => `w${'abcdefghij'[i % 10]}${String.fromCharCode(97 + (i % 26))}`)
  for (const [i, word] of words.entries()) report.log.warn(`${word} ${'x'.repeat(1 + (i % 100))}`)
  report.end()
  expect(counted(lines)).toBe(words.length)
  expect(clock.waiting).toBe(0)
  report.log.warn('alone')
  clock.advance(120_000)
  expect(clock.waiting).toBe(0)
})

it('the log says how long ago the last of folded lines was', () => {
  const { clock, lines, report } = stage()
  for (const afterMs of [0, 1_500, 100, 200, 10_000, 500]) {
    clock.advance(afterMs)
    report.log.warn('it failed')
  }
  clock.advance(60_000)
  expect(lines.map(({ message }) => message)).toEqual([
    'it failed',
    'it failed',
    'it failed (the last of 2 in 200 ms, 2.2 s ago)',
    'it failed',
    'it failed (7.7 s ago)',
  ])
})

it('the log writes what is counted before the line that says that it is over', () => {
  const { lines, report } = stage()
  for (let i = 0; i < 3; i++)
    report.emit('failed', { ...attempt, job: 'j', attempt: i + 1, error: { message: 'answered 503' } })
  report.emit('recovered', { task: 'sync', failures: 3, forMs: 61_000, worker: '7' })
  expect(lines.map(({ message }) => message)).toEqual([
    'attempt failed, next in 1 s: answered 503',
    expect.stringContaining('the last of 2 in'),
    '"sync" works again, after 3 failures in 61 s',
  ])
})

it('a line about a connection has a duration without a fraction', () => {
  const { lines, report } = stage()
  report.emit('connection', { to: 'redis', isLost: false, forMs: 1_999.831357 })
  expect(lines).toMatchObject([
    { message: 'Redis is back, and limits in it continue after 2 s', details: { forMs: 2_000 } },
  ])
})

it('the log makes no lines below its level, and calls listeners all the same', () => {
  const { lines, report } = stage('warn')
  const started = vi.fn<() => void>()
  const done = report.on('done', started)
  report.log.info('quiet')
  report.logOf({ job: 'j' }).info('quiet')
  report.emit('done', { ...attempt, job: 'j', attempt: 1 })
  expect(lines).toEqual([])
  expect(started).toHaveBeenCalledTimes(1)
  expect(report.has('done')).toBe(true)
  done()
  expect(report.has('done')).toBe(false)
})

it('a listener that throws or rejects is logged, and the others are called', async () => {
  const { lines, report } = stage()
  const heard = vi.fn<() => void>()
  report.on('held', () => {
    throw new Error('no')
  })
  report.on('held', async () => {
    throw new Error('later')
  })
  report.on('held', heard)
  report.emit('held', { limits: ['crm:a1'], forMs: 15_000, why: '429 from crm.example', cause: 'refused' })
  await vi.waitFor(() => expect(lines).toHaveLength(2))
  report.end()
  expect(heard).toHaveBeenCalledTimes(1)
  expect(lines[0]?.message).toBe('limit crm for a1 is held for 15 s: the vendor demanded it (429 from crm.example)')
  expect(lines.filter(({ message }) => message === 'a listener of the event "held" failed')).toHaveLength(2)
  expect(() => report.on('nosuch' as 'held', heard)).toThrow('`sluice.on` has no "nosuch"; there are started, ')
  expect(() => report.on('completed' as 'held', heard)).toThrow('here it is `done`; there are')
})

it('a promise of another realm, as in the sandbox of a test runner, is awaited like any other', async () => {
  const { lines, report } = stage()
  report.on('held', runInNewContext(`async () => { throw new Error('elsewhere') }`) as () => void)
  report.emit('held', { limits: ['crm'], forMs: 15_000, why: '429 from crm.example', cause: 'refused' })
  await vi.waitFor(() => expect(lines.at(-1)?.message).toBe('a listener of the event "held" failed'))
})

it('a logger that throws ends nothing', () => {
  const broken = () => {
    throw new Error('disk full')
  }
  const report = new Report(new SteppedClock(), { debug: broken, info: broken, warn: broken, error: broken })
  expect(() => report.log.warn('a')).not.toThrow()
})

it('the log writes JSON with the field names of pino, and errors with stack and causes', () => {
  const texts: string[] = []
  const log = writtenLog(
    { level: 'debug', format: 'json', isTerminal: false },
    (text) => texts.push(text),
    () => 5,
  )
  const err = Object.assign(new TypeError('odd', { cause: new Error('deep') }), { code: 'ODD' })
  log.error('x', { job: 'j', err })
  log.warn('y', err as never)
  const circle: Record<string, unknown> = { n: 10n }
  circle['own'] = circle
  log.info('z', { circle, job: 'j' })
  const [x, y, z] = texts.map((text) => JSON.parse(text) as Record<string, unknown>)
  expect(x).toEqual({
    level: 50,
    time: 5,
    pid: process.pid,
    hostname: expect.any(String),
    job: 'j',
    err: {
      type: 'TypeError',
      message: 'odd',
      code: 'ODD',
      stack: expect.stringMatching(/^TypeError: odd\n {4}at /),
      cause: { type: 'Error', message: 'deep', stack: expect.stringContaining('at ') },
    },
    msg: 'x',
  })
  expect(y).toMatchObject({ level: 40, msg: 'y', err: { type: 'TypeError' } })
  expect(z).toMatchObject({ level: 30, msg: 'z', job: 'j' })
})

it('the log writes text with time, level and fields, errors with their causes below, and no secrets', () => {
  hideValue('swordfish-9')
  const texts: string[] = []
  const log = writtenLog(
    { level: 'info', format: 'text', isTerminal: false },
    (text) => texts.push(text),
    () => 5,
  )
  log.debug('unseen')
  log.info('with Bearer abcdef123456 and swordfish-9', {
    task: 'sync',
    api_key: 'k',
    user: { name: 'ada', cookie: 'c' },
  })
  log.error('it broke', { err: new TypeError('odd password=hush', { cause: new Error('swordfish-9') }), job: 'j' })
  expect(texts[0]).toBe(
    '1970-01-01T00:00:00.005Z info  with Bearer [redacted] and [redacted]  task=sync api_key=[redacted] user={"name":"ada","cookie":"[redacted]"}\n',
  )
  const [head, type, frame, ...rest] = texts[1]?.split('\n') ?? []
  expect(head).toBe('1970-01-01T00:00:00.005Z error it broke  job=j')
  expect(type).toBe('  TypeError: odd password=[redacted]')
  expect(frame).toMatch(/^ {4}at .*report\.test\.ts/)
  expect(rest.join('\n')).toContain('  caused by Error: [redacted]\n    at ')
})

it('the log colours, and shows the time of day, on a terminal only', () => {
  const texts: string[] = []
  writtenLog(
    { level: 'info', format: 'text', isTerminal: true },
    (text) => texts.push(text),
    () => 5,
  ).warn('careful')
  expect(texts[0]).toMatch(/^\u001B\[2m\d\d:00:00\.005\u001B\[22m \u001B\[33mwarn \u001B\[39m careful\n$/)
})

it('the log takes level and format from the options, else from the environment', () => {
  vi.stubEnv('SLUICE_LOG_LEVEL', 'error')
  vi.stubEnv('SLUICE_LOG_FORMAT', 'json')
  expect(logStyle({}, 'warn')).toEqual({ level: 'error', format: 'json' })
  expect(logStyle({ logLevel: 'debug', logFormat: 'text' }, 'warn')).toEqual({ level: 'debug', format: 'text' })
  vi.stubEnv('SLUICE_LOG_LEVEL', 'loud')
  expect(() => reportOf({}, systemClock)).toThrow(
    'SLUICE_LOG_LEVEL is "loud"; it must be one of debug, info, warn, error, silent',
  )
  vi.unstubAllEnvs()
})
