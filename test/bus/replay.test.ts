/** Replays of a whole archive, with a rate, a bar, and an end at any time. `--mode long` has 10,000 events. */
import { expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { event, fail } from '../../src/index.ts'
import { isLong } from '../long.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'
import { program } from './stage.ts'

const paid = event('orders.paid')
const count = isLong ? 10_000 : 400
const perSecond = 2_000

it('replays give each event all its attempts once more, no faster than asked, and go on where they were stopped', async () => {
  const { url } = await freshBroker()
  let isMended = false
  const got: unknown[] = []
  const handler = paid.on(
    (n, { attempt, redelivered }) => {
      if (!isMended) throw fail('never')
      got.push([n, attempt, redelivered])
    },
    { retry: { attempts: 2, base: 20 } },
  )
  const a = await program(url, { service: 'a' }, [handler], 100)
  const archive = a.events.archive()
  const numbers = Array.from({ length: count }, (_, n) => n)
  await a.events.emitMany(paid, numbers)
  await until(async () => (await archive.count()) === count, 'all have failed')
  isMended = true
  const stop = new AbortController()
  let shown = 0
  const onProgress = ({ done }: { done: number }) => {
    expect(done).toBe(++shown)
    if (done === count / 4) stop.abort()
  }
  const startMs = systemClock.monotonicMs()
  const first = await archive.replay({}, { rate: `${perSecond}/s`, signal: stop.signal, onProgress })
  expect(first).toBe(count / 4)
  const rest = await archive.replay({}, { rate: `${perSecond}/s` })
  const tookMs = systemClock.monotonicMs() - startMs
  expect(rest).toBe(count - first)
  // The first of each call waits for nothing.
  expect(tookMs).toBeGreaterThanOrEqual(((count - 2) * 1_000) / perSecond - 50)
  await until(() => got.length >= count, 'all are handled')
  expect(got).toHaveLength(count)
  expect(new Set(got.map(String))).toEqual(new Set(numbers.map((n) => `${n},1,true`)))
  expect(await archive.count()).toBe(0)
  console.log(`${count} events replayed in ${Math.round(tookMs)} ms, at ${perSecond}/s`)
})
