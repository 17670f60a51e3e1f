import { expect, it } from 'vitest'
import { asyncapiOf } from '../../src/events/asyncapi.ts'

it('has an operation for each handler, also where patterns differ in one sign only', () => {
  const subscribers = ['orders.*', 'orders.#', '#'].map((pattern) => ({ service: 'a', handler: pattern, pattern }))
  const line = { type: 'orders.paid', publishers: [], subscribers, lastAt: null, isUnrouted: false }
  const { operations } = asyncapiOf([line], 'shop') as { operations: Record<string, object> }
  expect(Object.keys(operations)).toEqual([
    'receive_a_orders.any_orders.paid',
    'receive_a_orders.all_orders.paid',
    'receive_a_all_orders.paid',
  ])
})
