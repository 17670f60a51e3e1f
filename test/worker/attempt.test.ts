/** What an attempt's error means, and when its job is tried again. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { z } from 'zod'
import { rateLimited, Sluice, StoreError, task, UsageError } from '../../src/index.ts'
import { patient } from './patience.ts'

const errors: Record<string, () => unknown> = {
  plain: () => new Error('as a handler throws it'),
  store: () => new StoreError('SLUICE_STORE_UNREACHABLE', 'a follow-up could not be recorded'),
  // A second copy of the package, as a dependency may bring it: its classes are not ours.
  copied: async () => {
    const path = '../../dist/index.js'
    const copy = (await import(path)) as { rateLimited: typeof rateLimited }
    return copy.rateLimited({ status: 503, headers: new Headers() } as Response)
  },
  usage: () => new UsageError('SLUICE_INVALID_INPUT', 'a follow-up that no repetition makes valid'),
}
/** Told when the worker sleeps until something happens. */
let onIdle: (() => void) | undefined
let fail: (kind: string) => unknown
const failing = task('failing', {
  input: z.object({ kind: z.string() }),
  retry: { attempts: 2, base: 1, max: 1 },
  run: async ({ kind }, { attempt }) => {
    if (attempt === 1) throw await fail(kind)
  },
})
let sluice: Sluice

beforeAll(async () => {
  sluice = await Sluice.open({ store: 'memory:', clock: patient(() => onIdle?.()) })
  await sluice.work([failing])
})
afterAll(() => sluice.close())

test.each(['plain', 'store', 'copied'])(
  'a handler that throws a %s error is tried again, at once when due',
  async (kind) => {
    const job = await sluice.send(failing, { kind })
    const idle = new Promise<void>((resolve) => (onIdle = resolve))
    fail = async (which) => {
      await idle
      return errors[which]?.()
    }
    await expect.poll(async () => (await sluice.jobs.get(job))?.state, { timeout: 10_000 }).toBe('done')
    expect(await sluice.jobs.get(job)).toMatchObject({ attempt: 2, failed: 1 })
  },
)

test('an error that says that no repetition helps ends the job', async () => {
  fail = (which) => errors[which]?.()
  const job = await sluice.send(failing, { kind: 'usage' })
  await expect.poll(async () => (await sluice.jobs.get(job))?.state, { timeout: 10_000 }).toBe('failed')
  expect(await sluice.jobs.get(job)).toMatchObject({ reason: 'refused', attempt: 1 })
})
