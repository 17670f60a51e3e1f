/** Options that a program passes on from its environment or a request, where `exactOptionalPropertyTypes` is on, as it is here. */
import { expect, it, onTestFinished } from 'vitest'
import { type Duration, limit, Sluice, task } from '../../src/index.ts'

const read = <T>(name: string): T | undefined => process.env[`SLUICE_NOT_SET_${name}`] as T | undefined

it('an option that is undefined counts as absent, and compiles', async () => {
  const [text, number, duration] = [read<string>('TEXT'), read<number>('NUMBER'), read<Duration>('DURATION')]
  const signal = read<AbortSignal>('SIGNAL')
  const crm = limit('crm', { rate: '100/s' })
  const twice = task('twice', {
    limits: [crm],
    queue: text,
    timeout: duration,
    maxWait: duration,
    retry: { attempts: number, base: duration },
    run: ({ n }: { n: number }) => 2 * n,
  })
  const sluice = await Sluice.open({
    store: read<string>('STORE') ?? 'memory:',
    schema: text,
    connections: number,
    redis: text,
    logLevel: read<'info'>('LEVEL'),
    alarms: { webhook: text },
    retention: { done: duration },
  })
  onTestFinished(() => sluice.close())
  await sluice.work([twice], { concurrency: number, queues: read<string[]>('QUEUES'), grace: duration })
  const options = {
    queue: text,
    priority: number,
    delay: duration,
    idempotencyKey: text,
    at: read<Date>('AT'),
    tx: undefined,
  }
  const id = await sluice.send(twice, { n: 21 }, options)
  expect((await sluice.waitFor(id, { timeout: duration, signal })).result).toBe(42)
  const lease = await sluice.takes.take(crm, { key: text, cost: number, maxWaitMs: number, signal })
  await lease.giveBack()
  expect(await sluice.limits.usage({ limit: text, key: text, by: read<'month'>('BY') })).toHaveLength(1)
})
