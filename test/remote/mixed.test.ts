/** One limit over a fleet of which half is Node and half stock Celery, as the vendor sees it: exact, and well used. Long form only. */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { limit } from '../../src/limits/limit.ts'
import { task } from '../../src/tasks/task.ts'
import { vendor } from '../../src/testing/vendor.ts'
import { isLong } from '../long.ts'
import { copies } from '../rows.ts'
import { until } from '../until.ts'
import { member } from '../v8.ts'
import { another, dispatch, openStage, pythonTask, type Stage } from './stage.ts'

let stage: Stage
beforeAll(async () => {
  if (isLong) stage = await openStage()
})
afterAll(() => stage?.close())

const ringer = fileURLToPath(new URL('ringer.mjs', import.meta.url))
const input = z.object({ url: z.string() })

describe.runIf(isLong)('a fleet of two workers in Node and two of stock Celery', () => {
  it.for([
    { rate: '100/min', most: 100, windowMs: 60_000, windows: 3 },
    { rate: '100/10s', most: 100, windowMs: 10_000, windows: 8 },
    { rate: '20/s', most: 20, windowMs: 1_000, windows: 60 },
  ] as const)('keeps $rate, and uses of it what it prints', async ({ rate, most, windowMs, windows }, context) => {
    const { onTestFinished } = context
    const api = vendor({ rules: [{ algorithm: 'sliding log', limit: most, windowMs }] })
    const url = await api.listen()
    onTestFinished(() => api.close())
    const numbers = { rate, transit: '200ms' } as const
    const calls = limit('calls', numbers)
    const queue = another('mixed')
    const stock = await Promise.all([1, 2].map((n) => stage.start(another(`mixed${n}`), ['-c', '4', '-Q', queue])))
    onTestFinished(async () => void (await Promise.all(stock.map((one) => one.kill()))))
    const python = pythonTask('call', queue, { limits: [calls], slots: 8 })
    const node = task('ring', { input, limits: [calls], run: () => undefined })
    const { sluice, url: store, count } = await dispatch(stage, [python, node], context)
    for (let n = 0; n < 2; n++) {
      const worker = fork(ringer, [store, stage.url, JSON.stringify(numbers)], { execArgv: member })
      onTestFinished(() => void worker.kill('SIGKILL'))
      await once(worker, 'message')
    }
    // The first window is the bucket's, and lives of grants follow a busy machine in the second one.
    const warm = Math.max(2, Math.ceil(10_000 / windowMs))
    const inputs = copies(Math.ceil(((warm + windows + 2) * most) / 2), { url })
    await sluice.sendMany(python, inputs)
    await sluice.sendMany(node, inputs)
    const all = (warm + windows) * windowMs + 60_000
    await until(() => api.arrivals().length > 0, 'the first call is made')
    const untilNs = (api.arrivals()[0]?.atNs ?? 0) + (warm + windows) * windowMs * 1e6
    await until(() => (api.arrivals().at(-1)?.atNs ?? 0) > untilNs, 'the windows are over', all * 2)
    const times = api
      .arrivals()
      .map(({ atNs }) => atNs)
      .filter((atNs) => atNs > untilNs - windows * windowMs * 1e6 && atNs <= untilNs)
    const used = ((times.length - 1) / (((times.at(-1) ?? 0) - (times[0] ?? 0)) / 1e6)) * (windowMs / most)
    const { marginMs, guarantee } = await sluice.limits.show('calls')
    const printed = guarantee.rules[0]?.utilisation ?? 1
    const inPython = (await count(`done where task = 'call'`)) / (await count('done'))
    console.log({ rate, used, printed, marginMs, inPython })
    const { vendor429, rules, duplicates } = api.report()
    expect({ vendor429, exceeded: rules[0]?.exceeded, duplicates }).toEqual({
      vendor429: 0,
      exceeded: 0,
      duplicates: 0,
    })
    expect((await sluice.verify()).exceeded).toEqual([])
    expect(inPython).toBeGreaterThan(0.3)
    expect(inPython).toBeLessThan(0.7)
    // Because two tasks wait for the limit, each job is claimed by itself, and a busy machine claims it late.
    expect(used).toBeGreaterThanOrEqual(windowMs < 60_000 ? printed * 0.95 : 0.97)
  })
})
