/** The jobs in hand, with a simulated outlet, finisher and Redis. */
import { describe, expect, it } from 'vitest'
import { type Clock, systemClock } from '../../src/core/clock.ts'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import type { Finisher } from '../../src/claim/finish/finish.ts'
import type { Outcome } from '../../src/claim/finish/outcome.ts'
import { InHand } from '../../src/claim/in-hand.ts'
import type { Outlet, Reports } from '../../src/claim/outlet.ts'
import { Throttle } from '../../src/claim/throttle.ts'
import type { PeerDecision, PeerLimiter } from '../../src/limits/peer.ts'
import { until } from '../until.ts'

const log = { debug() {}, info() {}, warn() {}, error() {} }
const job = (task = 'a', buckets: string[] | null = ['calls']) =>
  ({ task, buckets, costs: null, chargedBuckets: null, grantedMs: 0 }) as unknown as ClaimedJob

interface Given {
  slots?: number
  /** Default: of one task three run at once. */
  kinds?: Outlet['kinds']
  rate?: number
  /** What Redis returns, when it replies. */
  answer?: Promise<Partial<PeerDecision>>
  /** Whether the store has the claims of what ends. */
  isRecorded?: boolean
  clock?: Clock
}

function stage({ slots = 10, kinds, rate, answer, isRecorded = true, clock = systemClock }: Given = {}) {
  const at = {
    started: [] as ClaimedJob[],
    aborted: [] as ClaimedJob[],
    ends: [] as string[],
    unused: 0,
    freed: 0,
    beats: [] as string[],
    failures: [] as unknown[],
    reports: {} as Reports,
  }
  const finisher = {
    backlog: 0,
    registerJobs() {},
    registerInherited() {},
    recordNow: () => false,
    end: async (_: ClaimedJob, outcome: Outcome) => at.ends.push(outcome.kind) > 0 && isRecorded,
  } as unknown as Finisher
  const peer = {
    async confirm({ wishes }: { wishes: readonly { count: number }[] }) {
      const said = await answer
      const leaf = (count: number) => ({ granted: count, fromMs: 7, notBeforeMs: 0, lacking: undefined, ...said })
      return { id: 'grant', decisions: wishes.map(({ count }) => leaf(count)) }
    },
    refund: () => void at.unused++,
    freePlaces: () => void at.freed++,
  } as unknown as PeerLimiter
  const few = { tasks: new Set(['few']), free: () => 3 - at.started.filter(({ task }) => task === 'few').length }
  const hand = new InHand(
    {
      outlet: (reports) => {
        at.reports = reports
        return {
          slots,
          free: () => slots - at.started.length,
          kinds: kinds ?? [few],
          start: (jobs) => void at.started.push(...jobs),
          abort: (one) => void at.aborted.push(one),
        }
      },
      finisher,
      stintRecorder: {
        begun: async (jobs) => new Set(jobs.map(({ claim }) => claim)),
        left: async () => {},
        beatFor: async (worker) => void at.beats.push(worker),
      },
      clock,
      peer: answer === undefined ? undefined : peer,
      throttle: rate === undefined ? undefined : new Throttle(`${rate}/s`, systemClock, log),
      timedOut: undefined,
      claimer: () => '1',
      onError: (error) => void at.failures.push(error),
      lostOutcome: (_, tookMs) => ({ kind: 'interrupt', error: '{}', tookMs }),
    },
    () => {},
  )
  return { at, hand }
}

describe('the jobs in hand', () => {
  it('leave fewer free places, in all and of their kind, from the moment when a place is kept for them', () => {
    const { at, hand } = stage({ rate: 30, slots: 100 })
    const most = hand.freeSlots.count()
    const [first, second] = [hand.keepSlot(), hand.keepSlot()]
    expect([hand.freeSlots.count(), hand.freeSlots.countByKind()[0]?.free]).toEqual([most - 2, 1])
    first([])
    expect([hand.freeSlots.count(), hand.freeSlots.countByKind()[0]?.free]).toEqual([most - 1, 2])
    second([job()])
    expect([hand.freeSlots.count(), hand.size, hand.freeSlots.kept, at.started.length]).toEqual([most - 1, 1, 0, 1])
  })

  it('start at the instant of their grants, never earlier, and keep their places until then', async () => {
    const { at, hand } = stage()
    const nowMs = systemClock.monotonicMs()
    const atMs = [nowMs + 40, nowMs + 20, nowMs + 20].map((notBeforeMs) => ({ ...job(), decidedMs: 0, notBeforeMs }))
    const early: number[] = []
    const started = at.started.push.bind(at.started)
    at.started.push = (...jobs) => {
      for (const { notBeforeMs = 0 } of jobs) early.push(notBeforeMs - systemClock.monotonicMs())
      return started(...jobs)
    }
    hand.take([...atMs, job()])
    expect([at.started.length, hand.freeSlots.count(), hand.size]).toEqual([1, 6, 4])
    await until(() => at.started.length === 4, 'all have started')
    expect(at.started.map(({ notBeforeMs }) => notBeforeMs)).toEqual([undefined, nowMs + 20, nowMs + 20, nowMs + 40])
    expect(Math.max(...early)).toBeLessThanOrEqual(0)
    expect(hand.freeSlots.count()).toBe(6)
  })

  it('wait beside the slots for their instants where attempts are short, at most twice as many', async () => {
    const { at, hand } = stage({ slots: 4, kinds: [] })
    const later = (ms: number) => ({
      ...job(),
      decidedMs: 0,
      notBeforeMs: systemClock.monotonicMs() + ms,
      grantUs: 100_000,
    })
    expect(hand.freeSlots.countAhead()).toBe(0)
    const first = job()
    hand.take([first])
    void at.reports.ended(first, { kind: 'done', result: null, tookMs: 0 })
    at.started.length = 0
    expect([hand.freeSlots.count(), hand.freeSlots.countAhead()]).toEqual([4, 8])
    hand.take([later(20), later(20), later(20), later(60_000)])
    expect([hand.freeSlots.count(), hand.freeSlots.countAhead()]).toEqual([4, 4])
    await until(() => at.started.length === 3, 'those whose instant has come have started')
    expect([hand.freeSlots.count(), hand.freeSlots.countAhead()]).toEqual([1, 7])
    hand.take(Array.from({ length: 8 }, () => later(60_000)))
    expect([hand.freeSlots.count(), hand.freeSlots.countAhead()]).toEqual([0, 0])
  })

  it('go back when they find no slot while their grants live, and start when one becomes free before', async () => {
    const { at, hand } = stage({ slots: 1, kinds: [] })
    const [first, late, soon] = [job(), job(), job()]
    hand.take([first])
    const nowMs = systemClock.monotonicMs()
    hand.take([{ ...late, decidedMs: 0, notBeforeMs: nowMs + 5, grantedMs: nowMs, grantUs: 20_000 }])
    await until(() => at.ends.length === 1, 'the one whose grant has grown old is given back')
    expect([at.ends, at.started]).toEqual([['unused'], [first]])
    const grants = { grantedMs: systemClock.monotonicMs(), grantUs: 60_000_000 }
    const both = [soon, job()].map((one) => ({ ...one, ...grants, decidedMs: 0, notBeforeMs: grants.grantedMs + 1 }))
    hand.take(both)
    await until(() => systemClock.monotonicMs() > grants.grantedMs + 5, 'their instant is over')
    expect(at.started).toEqual([first])
    at.started.length = 0
    void at.reports.ended(first, { kind: 'done', result: null, tookMs: 1 })
    await until(() => at.started.length > 0, 'one has the slot')
    expect(at.started).toEqual([both[0]])
  })

  it('take one slot each when several that came at different instants wait for it', async () => {
    const { at, hand } = stage({ slots: 1, kinds: [] })
    const first = job()
    hand.take([first])
    const grants = { grantedMs: systemClock.monotonicMs(), grantUs: 60_000_000 }
    hand.take([1, 2, 3].map((ms) => ({ ...job(), ...grants, decidedMs: 0, notBeforeMs: grants.grantedMs + ms })))
    await until(() => systemClock.monotonicMs() > grants.grantedMs + 10, 'their instants are over')
    at.started.length = 0
    void at.reports.ended(first, { kind: 'done', result: null, tookMs: 1 })
    await until(() => at.started.length > 0, 'one has the slot')
    expect(at.started).toHaveLength(1)
  })

  it('go back when the vendor refuses another of their limit before their instant', () => {
    const { at, hand } = stage({ slots: 5 })
    const later = (buckets: string[]) => ({
      ...job('a', buckets),
      decidedMs: 0,
      notBeforeMs: systemClock.monotonicMs() + 60_000,
    })
    const first = job()
    hand.take([first, later(['calls']), later(['others']), later(['calls'])])
    const outcome = { kind: 'throttled', error: '{}', delayMs: 0, delayReason: 'throttled', tookMs: 1 } as const
    void at.reports.ended(first, outcome)
    expect([at.ends, hand.size]).toEqual([['throttled', 'unused', 'unused'], 1])
  })

  it('stay when the vendor refuses another key of a limit beside a total that all share', () => {
    const { at, hand } = stage({ slots: 5 })
    const first = job('a', ['account:x', 'total'])
    const later = (key: string) => ({
      ...job('a', [`account:${key}`, 'total']),
      decidedMs: 0,
      notBeforeMs: systemClock.monotonicMs() + 60_000,
    })
    hand.take([first, later('x'), later('y'), later('z')])
    void at.reports.ended(first, { kind: 'throttled', error: '{}', delayMs: 0, delayReason: 'throttled', tookMs: 1 })
    expect([at.ends, hand.jobs().map(({ buckets }) => buckets?.[0])]).toEqual([
      ['throttled', 'unused'],
      ['account:y', 'account:z'],
    ])
  })

  it('go back when they are called back, also by a claim that was under way then', () => {
    const { at, hand } = stage({ slots: 5 })
    const nowMs = systemClock.monotonicMs()
    const later = (buckets: string[], asked = nowMs) => {
      const moment = { monotonicMs: asked, bootMs: asked, wallMs: asked }
      return { ...job('a', buckets), decidedMs: 0, notBeforeMs: nowMs + 60_000, requestedAt: moment }
    }
    hand.take([later(['calls']), later(['others'])])
    hand.giveBackAhead(({ buckets }) => buckets?.includes('calls') === true)
    expect([at.ends, hand.size]).toEqual([['unused'], 1])
    hand.take([later(['others']), later(['calls']), later(['calls'], nowMs + 60_000)])
    expect([at.ends, hand.size]).toEqual([['unused', 'unused'], 3])
  })

  it('never begin in more slots than there are, though others that were granted ahead began during their claim', async () => {
    const { at, hand } = stage({ slots: 1, kinds: [] })
    const first = job()
    hand.take([first])
    void at.reports.ended(first, { kind: 'done', result: null, tookMs: 0 })
    at.started.length = 0
    const ahead = { ...job(), decidedMs: 0, notBeforeMs: systemClock.monotonicMs() + 5, grantUs: 100_000 }
    hand.take([ahead])
    // A claim for the slot is under way while the instant comes.
    expect(hand.freeSlots.count()).toBe(1)
    await until(() => at.started.length === 1, 'the one granted ahead has begun')
    const [limited, free] = [
      { ...job('b'), grantedMs: -1e9, grantUs: 1 },
      { ...job('b', null), grantUs: null },
    ]
    hand.take([limited, free])
    expect([at.started, hand.freeSlots.count()]).toEqual([[ahead], 0])
    await until(() => at.ends.length === 2, 'the one whose grant is old goes back')
    expect(at.ends).toEqual(['done', 'unused'])
    at.started.length = 0
    void at.reports.ended(ahead, { kind: 'done', result: null, tookMs: 1 })
    await until(() => at.started.length > 0, 'the other has the slot')
    expect(at.started).toEqual([free])
  })

  it('go back without a slot, though the timer rings a little before their grants are old', async () => {
    const early: Clock = { ...systemClock, after: (ms, then) => systemClock.after(ms, then) }
    let isFrozen = false
    early.monotonicMs = () => (isFrozen ? 10 : systemClock.monotonicMs())
    const { at, hand } = stage({ slots: 1, kinds: [], clock: early })
    const first = job()
    hand.take([first])
    isFrozen = true
    hand.take([{ ...job(), decidedMs: 0, notBeforeMs: 5, grantedMs: 5, grantUs: 6_000 }])
    await until(() => at.ends.length === 1, 'it has gone back')
    expect([at.ends, hand.size]).toEqual([['unused'], 1])
  })

  it('go back without a slot when the vendor refuses another of their limit, or the worker ends', async () => {
    const { at, hand } = stage({ slots: 1, kinds: [] })
    const later = (buckets: string[]) => {
      const nowMs = systemClock.monotonicMs()
      return { ...job('a', buckets), decidedMs: 0, notBeforeMs: nowMs, grantedMs: nowMs, grantUs: 60_000_000 }
    }
    const first = job()
    hand.take([first, later(['calls']), later(['others'])])
    await until(() => hand.freeSlots.count() === 0, 'both wait for a slot')
    const outcome = { kind: 'throttled', error: '{}', delayMs: 0, delayReason: 'throttled', tookMs: 1 } as const
    void at.reports.ended(first, outcome)
    // Not because there was too much at once.
    expect([at.ends, hand.returned, hand.lateReturns]).toEqual([['throttled', 'unused'], 1, 0])
    hand.abort(new Error('over'))
    await until(() => hand.size === 0, 'the other has gone back')
    expect([at.ends, at.started]).toEqual([['throttled', 'unused', 'unused'], [first]])
  })

  it('go back at once when the worker ends, or gives them up, before the instant of their grants', async () => {
    const { at, hand } = stage()
    const later = () => ({ ...job(), decidedMs: 0, notBeforeMs: systemClock.monotonicMs() + 30 })
    const [given, kept] = [later(), later()]
    hand.take([given, kept])
    hand.drop([given], new Error('over'))
    expect([at.ends, hand.freeSlots.count()]).toEqual([['interrupt'], 9])
    hand.abort(new Error('over'))
    await until(() => hand.size === 0, 'none is in hand')
    expect([at.started, at.ends, hand.freeSlots.count()]).toEqual([[], ['interrupt', 'unused'], 10])
  })

  it('end by the first of several reports of an attempt', () => {
    const { at, hand } = stage()
    const one = job()
    hand.take([one])
    void at.reports.ended(one, { kind: 'unused' })
    void at.reports.ended(one, { kind: 'done', result: null, tookMs: 1 })
    expect([at.ends, hand.size, hand.returned, hand.lateReturns]).toEqual([['unused'], 0, 1, 1])
  })

  it('keep the worker that claimed them from being given up as soon as they are taken over', () => {
    const { at, hand } = stage()
    for (const from of ['7', '7', '8']) at.reports.inherited(job(), from)
    expect([at.beats, hand.lostClaimers()]).toEqual([
      ['7', '8'],
      ['7', '8'],
    ])
  })

  it('a place that becomes free after its job was given up is noticed', async () => {
    const { at, hand } = stage({ slots: 1 })
    const one = job()
    hand.take([one])
    hand.drop([one], new Error('over'))
    let isFree = false
    void hand.freeSlots.waitFor(1).then(() => (isFree = true))
    await until(() => at.ends.length === 1, 'its end is recorded')
    expect([hand.size, isFree]).toEqual([0, false])
    at.started.length = 0
    void at.reports.ended(one, { kind: 'interrupt', error: '{}', tookMs: 1 })
    await until(() => isFree, 'the place is free')
    expect(at.ends).toEqual(['interrupt'])
  })

  it('what was cancelled before its claim was read, and what an unknown claim holds, goes back and does not start', () => {
    const { at, hand } = stage()
    hand.take([{ ...job(), isGone: true }, job(), { ...job(), grantedMs: -Infinity }])
    expect([at.started.length, at.ends, hand.size, hand.freeSlots.count()]).toEqual([1, ['unused', 'unused'], 1, 9])
  })

  it('take a place at once when Redis has to grant them too, and start once it has', async () => {
    let grant: (leave: Partial<PeerDecision>) => void = () => {}
    const { at, hand } = stage({ answer: new Promise((resolve) => (grant = resolve)) })
    const limited = [job('few'), job('few'), job('few')]
    hand.take([...limited, job('a', null)])
    expect(at.started.map(({ task }) => task)).toEqual(['a'])
    expect([hand.freeSlots.count(), hand.freeSlots.countByKind()[0]?.free]).toEqual([6, 0])
    let free = () => {}
    grant({ granted: 2, lacking: 'calls', held: new Promise((resolve) => (free = resolve)) })
    await until(() => at.started.length === 3, 'two are granted')
    expect(limited.map(({ grant: id, grantedMs }) => [id, grantedMs])).toEqual([
      ['grant', 7],
      ['grant', 7],
      [undefined, 0],
    ])
    // The third job is in hand until the store holds its bucket.
    expect([hand.size, at.ends]).toEqual([4, []])
    free()
    await until(() => hand.size === 3, 'the third went back')
    expect([at.ends, hand.readmitted]).toEqual([['denied'], 1])
  })

  it.each([true, false])(
    'that an outlet refuses are given back to Redis only if the store records that: %s',
    async (is) => {
      const { at, hand } = stage({ answer: Promise.resolve({}), isRecorded: is })
      hand.take([job()])
      await until(() => at.started.length === 1, 'it started')
      at.reports.refused(at.started[0] as ClaimedJob)
      await until(() => at.ends.length === 1, 'its end was reported')
      await new Promise((resolve) => setImmediate(resolve))
      expect([at.ends, at.unused, hand.size]).toEqual([['unused'], is ? 1 : 0, 0])
    },
  )

  it.each(['drop', 'abort'] as const)(
    'that Redis grants after a %s are given back to Redis, and do not start',
    async (how) => {
      let grant: (leave: Partial<PeerDecision>) => void = () => {}
      const { at, hand } = stage({ answer: new Promise((resolve) => (grant = resolve)) })
      hand.take([job(), job()])
      const reason = new Error('over')
      if (how === 'drop') hand.drop(hand.jobs(), reason)
      else hand.abort(reason)
      grant({})
      await until(() => at.unused === 2 && hand.size === 0, 'both went back')
      expect([at.started, at.aborted, hand.freeSlots.count()]).toEqual([[], [], 10])
      expect(at.ends).toEqual(how === 'drop' ? ['interrupt', 'interrupt'] : ['unused', 'unused'])
      // The jobs that a running claim may still bring.
      if (how === 'abort') hand.take([job()])
      expect([at.started, hand.size]).toEqual([[], 0])
    },
  )

  it('that Redis grants for later are given back to Redis once when they are called back, and their places too', async () => {
    const { at, hand } = stage({ answer: Promise.resolve({ notBeforeMs: systemClock.monotonicMs() + 50 }) })
    const one = job()
    hand.take([one])
    await until(() => one.notBeforeMs !== undefined, 'Redis has granted it')
    hand.giveBackAhead(() => true)
    await until(() => at.unused > 0, 'it went back')
    await until(() => systemClock.monotonicMs() > (one.notBeforeMs ?? 0) + 20, 'its instant is over')
    expect(at).toMatchObject({ unused: 1, freed: 1, ends: ['unused'], started: [] })
  })

  it('free their places in Redis when they were given up before it answered', async () => {
    let grant: (leave: Partial<PeerDecision>) => void = () => {}
    const { at, hand } = stage({ answer: new Promise((resolve) => (grant = resolve)) })
    hand.take([job()])
    hand.drop(hand.jobs(), new Error('lost'))
    grant({})
    await until(() => at.unused > 0, 'it went back')
    expect(at.freed).toBe(1)
  })
})
