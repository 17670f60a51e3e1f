/** Runs what may start now, and gives up on a handler that does not end: its task's time-out is ten minutes. */
import { areTimersFaked, systemClock } from '../core/clock.ts'
import { StoreError, UsageError } from '../core/errors.ts'
import type { Work } from '../events/groups.ts'
import type { RecordedError } from '../report/events.ts'
import type { Schedule } from '../schedule/schedule.ts'
import type { Sluice } from '../sluice.ts'

/** How long a run that was given up may take to end, in ms: a handler may hold the only transaction of the store. */
const partMs = 1_000
const namesMax = 3

/** Refuses timers that never fire: neither the store nor the kit's own time-outs would go on. @throws UsageError SLUICE_BAD_OPTION */
export function refuseFakeTimers(): void {
  if (!areTimersFaked()) return
  const text =
    'the timers of this process are faked (`useFakeTimers`), so nothing would ever end: the kit moves a clock of its own, ' +
    '`t.clock`. To fake the date as well, fake nothing else: `vi.useFakeTimers({ toFake: ["Date"] })`'
  throw new UsageError('SLUICE_BAD_OPTION', text)
}

/** The attempt of a job. */
interface Begun {
  readonly job: string
  readonly task: string
}

/** The runs of one kit. Their patience is in real time: the kit's clock stands still while handlers run. */
export class Runs {
  readonly #sluice: Sluice
  readonly #schedules: readonly Schedule[]
  readonly #patienceMs: number
  /** Attempts whose end is not known. Of some it never is: of those that their handlers put off, for example. */
  readonly #begun = new Map<string, Begun>()
  /** Attempts that were taken from their handlers. */
  readonly #taken: Begun[] = []
  /** When an attempt last began or ended. */
  #movedMs = 0
  /** The work under way, and the signal that stops it. */
  readonly #underway = new Map<Promise<number>, AbortController>()
  /** A run was left alone, so that the store cannot end either. */
  #isLeft = false

  constructor(sluice: Sluice, schedules: readonly Schedule[], patienceMs: number) {
    this.#sluice = sluice
    this.#schedules = schedules
    this.#patienceMs = patienceMs
    const ended = ({ job, task, error }: Begun & { error?: RecordedError }) => {
      this.#begun.delete(job)
      this.#movedMs = systemClock.monotonicMs()
      if (error?.code === 'SLUICE_SHUTDOWN') this.#taken.push({ job, task })
    }
    for (const name of ['done', 'failed', 'throttled', 'exhausted'] as const) sluice.on(name, ended)
    sluice.on('started', ({ job, task }) => {
      this.#begun.set(job, { job, task })
      this.#movedMs = systemClock.monotonicMs()
    })
  }

  /** Stores the schedules: their instants count from now on, and not from the first run. */
  async begin(work: readonly Work[]): Promise<void> {
    // The jobs of an earlier kit on the same store go on where its clock was.
    for (const { name } of this.#schedules) await this.#sluice.schedules.remove(name)
    if (this.#schedules.length > 0) await this.run(work, 0)
  }

  /**
   * Runs what may start now, at most `max`; resolves to how many jobs that were. It may end early: with too many handlers that do
   * not stop, or when grants grow old again and again.
   * @throws StoreError SLUICE_WAIT_TIMEOUT when a handler has not ended, and for the patience no attempt began or ended
   */
  async run(work: readonly Work[], max?: number): Promise<number> {
    refuseFakeTimers()
    if (this.#underway.size === 0) {
      this.#begun.clear()
      this.#taken.length = 0
    }
    const stop = new AbortController()
    const running = this.#run(work, stop, max)
    this.#underway.set(running, stop)
    try {
      return await running
    } finally {
      this.#underway.delete(running)
    }
  }

  /** Ends what is under way, and the store with `end`. @throws StoreError SLUICE_WAIT_TIMEOUT when a handler has not ended */
  async close(end: () => Promise<void>): Promise<void> {
    for (const stop of this.#underway.values()) stop.abort()
    try {
      await Promise.all(this.#underway.keys())
    } finally {
      const ending = end()
      await (this.#isLeft ? Promise.race([ending.catch(() => {}), systemClock.sleep(partMs)]) : ending)
    }
  }

  async #run(work: readonly Work[], stop: AbortController, max: number | undefined): Promise<number> {
    const { signal } = stop
    const how = { schedules: this.#schedules, grace: 0, signal, ...(max === undefined ? {} : { max }) }
    const over = new AbortController()
    this.#movedMs = systemClock.monotonicMs()
    const running = this.#sluice.dispatchOnce(work, how)
    running.catch(() => {})
    try {
      const ran = await Promise.race([running, this.#watch(stop, over.signal)])
      this.#isLeft ||= ran === undefined
      const left = this.#taken.length > 0 ? this.#taken : ran === undefined ? [...this.#begun.values()] : []
      if (signal.aborted && left.length > 0) throw this.#unendedError(left)
      return ran ?? 0
    } finally {
      over.abort()
    }
  }

  /** Stops a run once its handlers make no progress. Resolves when it should have ended. */
  async #watch(stop: AbortController, over: AbortSignal): Promise<undefined> {
    const stirred = AbortSignal.any([stop.signal, over])
    while (!stirred.aborted) {
      const leftMs =
        this.#begun.size === 0 ? this.#patienceMs : this.#movedMs + this.#patienceMs - systemClock.monotonicMs()
      if (leftMs <= 0) stop.abort()
      else await systemClock.sleep(leftMs, stirred)
    }
    await systemClock.sleep(partMs, over)
  }

  #unendedError(left: readonly Begun[]): StoreError {
    const names = left.slice(0, namesMax).map(({ job, task }) => `"${task}" (job ${job})`)
    const more = left.length > namesMax ? `, and of ${left.length - namesMax} more` : ''
    const text = `the handler of ${names.join(', ')}${more} had not ended after ${this.#patienceMs / 1_000} s, or when the kit was closed, and was given up. It awaits what does not come: fake timers, a mock that does not answer, or a further request for which a limit has no room while the clock stands still. If it needs longer: testSluice({ timeout: '1min' })`
    return new StoreError('SLUICE_WAIT_TIMEOUT', text)
  }
}
