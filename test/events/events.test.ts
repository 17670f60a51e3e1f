import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { event, on, Sluice } from '../../src/index.ts'
import { engines } from '../claim/engine.ts'

const even = event('demo.number.even', z.object({ number: z.number() }))

describe.each(engines)('on $name', (engine) => {
  let url: string
  let billing: Sluice
  beforeEach(async () => {
    url = await engine.store()
    billing = await Sluice.open({ store: url, service: 'billing' })
  })
  afterEach(() => billing.close())

  it('delivers an event to each handler of a service once', async () => {
    const got: unknown[] = []
    const work = [
      even.on((payload, { event: { id, type }, redelivered }) => void got.push(['a', payload, id, type, redelivered])),
      on('demo.#', (payload) => void got.push(['b', payload]), { name: 'audit' }),
    ]
    await billing.dispatchOnce(work)
    const id = await billing.events.emit(even, { number: 4 })
    expect(await billing.dispatchOnce(work)).toBe(2)
    expect(got).toEqual([
      ['a', { number: 4 }, id, 'demo.number.even', false],
      ['b', { number: 4 }],
    ])
    console.log(
      JSON.stringify(await billing.events.show(id)),
      JSON.stringify(await billing.events.list()),
      JSON.stringify(await billing.events.handlers()),
    )
  })
})
