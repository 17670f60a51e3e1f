/** Jobs that need several saturated limits, beside others that need one of them each: none starves. */
import { beforeAll, describe, expect, it } from 'vitest'
import { type Limit, limit } from '../../src/limits/limit.ts'
import { isLong } from '../long.ts'
import { claim, done, emptied, mainEngines, ownClock, quietTask } from './engine.ts'
import { copies } from '../rows.ts'

const startMs = 1_800_000_000_000
const [forMs, jobs] = isLong ? [90_000, 20] : [45_000, 10]

const cases = [
  { name: 'windows 10/10s and 20/10s', rules: [{ window: '10/10s' }, { window: '20/10s' }] },
  { name: 'windows 20/10s and 10/10s', rules: [{ window: '20/10s' }, { window: '10/10s' }] },
  { name: 'rate 100/min twice', rules: [{ rate: '100/min' }, { rate: '100/min' }] },
  {
    name: 'rate 60/min burst 1 twice',
    rules: [
      { rate: '60/min', burst: 1 },
      { rate: '60/min', burst: 1 },
    ],
  },
  { name: 'window 100/10s and rate 20/s', rules: [{ window: '100/10s' }, { rate: '20/s' }] },
  { name: 'rate 20/s and window 100/10s', rules: [{ rate: '20/s' }, { window: '100/10s' }] },
  { name: 'three rates 60/min', rules: [{ rate: '60/min' }, { rate: '60/min' }, { rate: '60/min' }] },
  { name: 'three windows', rules: [{ window: '10/10s' }, { window: '12/10s' }, { window: '14/10s' }] },
] as const

/** Where in a window these jobs come; the short form takes one of the two for each case in turn. */
const phases = (i: number) => (isLong ? [0, 3_700] : [i % 2 === 0 ? 0 : 3_700])

describe.each(mainEngines)('jobs that need several saturated limits, on $name', (engine) => {
  const at = Object.assign(emptied(engine), { clock: {} as Awaited<ReturnType<typeof ownClock>> })
  beforeAll(async () => void (at.clock = await ownClock(at.db, startMs)))

  it.each(cases.flatMap((one, i) => phases(i).map((phaseMs) => ({ ...one, i, phaseMs }))))(
    `$name, phase $phaseMs ms: ${jobs} of them get their share in ${forMs / 1_000} s`,
    async ({ rules, i, phaseMs }) => {
      const limits = rules.map((rule, n) => limit(`several.${i}.${phaseMs}.${n}`, rule as never)) as Limit<object>[]
      const both = quietTask(`several.${i}.${phaseMs}.all`, limits)
      const alone = limits.map((one, n) => quietTask(`several.${i}.${phaseMs}.only${n}`, [one]))
      const names = [both, ...alone].map(({ name }) => name)
      let nowMs = startMs + i * 1_000_000 + phaseMs * 100
      await at.clock.set(nowMs)
      for (const one of alone) await at.sluice.sendMany(one, copies(3_000))
      const until = async (endMs: number) => {
        let count = 0
        for (let waits = 0; nowMs < endMs && count < jobs;) {
          const { jobs: got, again, wakeUs } = await claim(at.db, at.worker, names, 40)
          count += got.filter(({ input }) => (input as { text?: string }).text === 'all').length
          await done(at.db, got)
          if (got.length > 0 || again) continue
          expect(++waits).toBeLessThan(20_000)
          nowMs += Math.max(1, Math.min(500, Math.ceil((wakeUs ?? 500_000) / 1_000)))
          await at.clock.set(nowMs)
        }
        return count
      }
      // The other tasks have saturated the limits before these jobs come.
      await until(nowMs + 5_000 + phaseMs)
      await at.sluice.sendMany(both, copies(jobs, { text: 'all' }))
      expect(await until(nowMs + forMs)).toBeGreaterThanOrEqual(jobs * 0.9)
    },
  )
})
