/** Each kind of rule against a vendor that enforces it: nothing is exceeded, and everything gets through. */
import { expect, test } from 'vitest'
import { z } from 'zod'
import { limit, type LimitOptions, Sluice, task } from '../../src/index.ts'
import { vendor, type VendorOptions } from '../../src/testing/index.ts'
import { copies } from '../rows.ts'
import { until } from '../until.ts'
import { freshDatabase } from '../servers/database.ts'

// The transit to a vendor in the same process takes as long as its busiest moment.
const transit = '500ms'
const cases: Record<string, { limited: LimitOptions; rules: VendorOptions['rules']; jobs: number }> = {
  'a window, and a sliding log': {
    limited: { window: '20/2s', transit },
    rules: [{ algorithm: 'sliding log', limit: 20, windowMs: 2_000 }],
    jobs: 55,
  },
  'two windows in one line, and two fixed ones': {
    limited: { window: ['10/s', '25/3s'], transit },
    rules: [
      { algorithm: 'fixed window', limit: 10, windowMs: 1_000 },
      { algorithm: 'fixed window', limit: 25, windowMs: 3_000 },
    ],
    jobs: 60,
  },
  'a concurrency': {
    limited: { concurrency: 3 },
    rules: [{ algorithm: 'concurrency', limit: 3 }],
    jobs: 60,
  },
}

test.concurrent.each(Object.keys(cases))('two workers exceed nothing of %s', async (name) => {
  const { limited, rules, jobs } = cases[name] as (typeof cases)[string]
  const api = vendor({ rules, latencyMs: 20 })
  const url = await api.listen()
  const { url: store } = await freshDatabase()
  const call = task('call', {
    input: z.object({}),
    limits: [limit('api', limited)],
    run: async (_, { fetch }) => {
      const response = await fetch(url)
      await response.text()
    },
  })
  const [one, other] = await Promise.all([Sluice.open({ store }), Sluice.open({ store })])
  try {
    await one.sendMany(call, copies(jobs))
    await Promise.all([one.work([call]), other.work([call])])
    await until(async () => (await one.jobs.status()).done === jobs, 'all done')
    expect(api.report()).toMatchObject({ vendor429: 0, arrivals: jobs })
    expect(api.report().rules.every(({ exceeded }) => exceeded === 0)).toBe(true)
  } finally {
    await Promise.all([one.close(), other.close()])
    await api.close()
  }
})
