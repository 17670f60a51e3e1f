/** The kit's tools for events: what was emitted, and deliveries by hand. */
import { afterEach, expect, it } from 'vitest'
import { z } from 'zod'
import { event, fail, on } from '../../src/index.ts'
import { testSluice, type TestSluice } from '../../src/testing/index.ts'

const paid = event('orders.order.paid', z.object({ order: z.number() }))
const shipped = event('orders.order.shipped', z.object({ order: z.number() }))
const got: unknown[] = []
const ship = paid.on(({ order }) => shipped.emit({ order }), { name: 'ship', retry: { base: '1min' } })
const audit = on('orders.#', (payload, { event: { type } }) => void got.push([type, payload]), { name: 'audit' })
let kit: TestSluice
afterEach(() => kit.close())

it('the kit runs handlers, lists what was emitted, and delivers by hand', async () => {
  kit = await testSluice({ tasks: [ship, audit] })
  await kit.drain()
  await paid.emit({ order: 7 })
  await kit.drain()
  expect(await kit.emitted(shipped)).toMatchObject([
    { type: 'orders.order.shipped', source: '/services/test', data: { order: 7 } },
  ])
  expect(got).toEqual(
    expect.arrayContaining([
      ['orders.order.paid', { order: 7 }],
      ['orders.order.shipped', { order: 7 }],
    ]),
  )
  expect(await kit.deliver(audit, { any: 1 }, { type: 'orders.x' })).toMatchObject({ state: 'done' })
  expect(got.at(-1)).toEqual(['orders.x', { any: 1 }])
  for (const wrong of [undefined, { type: 'orders.#' }, { type: 'payments.x' }])
    await expect(kit.deliver(audit, { any: 1 }, wrong)).rejects.toThrow('"audit" handles orders.#: give `type`')
  expect(await kit.deliver(ship, { order: 'seven' }, { version: 2 })).toMatchObject({
    state: 'failed',
    error: { code: 'SLUICE_EVENT_REFUSED' },
  })
  expect(await kit.emitted(paid)).toHaveLength(1)
  await expect(kit.emitted('orders.order.paid' as never)).rejects.toThrow('is no event; give what event(…) returned')
})

it('an event that is delivered by hand has the time of the kit', async () => {
  const times: string[] = []
  const note = paid.on((_, { event: { time } }) => void times.push(time), { name: 'note' })
  kit = await testSluice({ tasks: [note], start: new Date('2030-01-01T00:00:00Z') })
  await kit.deliver(note, { order: 7 })
  await kit.clock.advance('24h')
  await kit.deliver(note, { order: 8 })
  expect(times.map((time) => time.slice(0, 10))).toEqual(['2030-01-01', '2030-01-02'])
})

it('what a handler returns and meant to throw counts as thrown', async () => {
  const refuse = paid.on(() => fail('no such order'), { name: 'refuse' })
  kit = await testSluice({ tasks: [refuse] })
  expect(await kit.deliver(refuse, { order: 7 })).toMatchObject({
    state: 'failed',
    error: { message: 'no such order' },
  })
})

it('a response that a handler returns is checked, and nothing that it returns is kept', async () => {
  const answers = [new Response('gone', { status: 410 }), new Response('{}'), { any: 'thing' }]
  const call = paid.on(() => answers.shift(), { name: 'call' })
  kit = await testSluice({ tasks: [call] })
  expect(await kit.deliver(call, { order: 7 })).toMatchObject({
    state: 'failed',
    error: { code: 'SLUICE_HTTP_STATUS' },
  })
  for (const order of [8, 9]) expect(await kit.deliver(call, { order })).toMatchObject({ state: 'done', result: null })
})
