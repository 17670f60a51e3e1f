import { expect, it } from 'vitest'
import { z } from 'zod'
import { systemClock } from '../../src/core/clock.ts'
import { newId } from '../../src/core/hash.ts'
import type { Store } from '../../src/db/store.ts'
import { event } from '../../src/events/event.ts'
import { Events } from '../../src/events/events.ts'
import { EventOutbox } from '../../src/events/outbox.ts'

it('large events that are emitted at one time are recorded by several statements', async () => {
  const sizes: number[] = []
  const call = async (_: string, [ids]: unknown[]) => {
    sizes.push(String(ids).split(',').length)
    return []
  }
  const store = { clock: systemClock, call } as unknown as Store
  const outbox = new EventOutbox(store, () => store)
  const rows = Array.from({ length: 40 }, () => ({ id: newId(), type: 'large', text: 'x'.repeat(250_000) }))
  await Promise.all(rows.map((row) => outbox.add(row)))
  expect(await outbox.write(rows)).toBe(40)
  expect(sizes).toEqual([34, 6, 34, 6])
})

it('the first event of a type does not wait for a silent store if the store does not carry events', async () => {
  const emitted: string[] = []
  const transport = { isStore: false, tasks: [], add: async ({ type }: { type: string }) => void emitted.push(type) }
  const store = { clock: systemClock, run: () => new Promise(() => {}) }
  const events = new Events({ store, transport, enter: () => undefined } as never)
  await events.emit(event('demo.first', z.any()), {})
  expect(emitted).toEqual(['demo.first'])
})
