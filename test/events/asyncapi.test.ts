import { expect, it } from 'vitest'
import { asyncapiOf } from '../../src/events/asyncapi.ts'

it('a document has an operation for each handler, also where patterns differ in one sign only', () => {
  const subscribers = ['orders.*', 'orders.#', '#'].map((pattern) => ({ service: 'a', handler: pattern, pattern }))
  const line = { type: 'orders.paid', publishers: [], subscribers, lastAt: null, isUnrouted: false }
  const { operations } = asyncapiOf([line], 'shop') as { operations: Record<string, object> }
  expect(Object.keys(operations)).toEqual([
    'receive_a_orders.any_orders.paid',
    'receive_a_orders.all_orders.paid',
    'receive_a_all_orders.paid',
  ])
})

it('a document has references that lead to a part of the document, where a schema refers to itself', () => {
  const kids = { type: 'array', items: { $ref: '#' } }
  const node = { type: 'object', properties: { name: { $ref: '#/$defs/name' }, kids } }
  const schema = { ...node, $defs: { name: { type: 'string' } } }
  const publishers = [{ service: 'a', version: 1, description: null, schema, at: new Date(0) }]
  const line = { type: 'tree.node.added', publishers, subscribers: [], lastAt: null, isUnrouted: false }
  const document = asyncapiOf([line], 'shop')
  const found = [...JSON.stringify(document).matchAll(/"\$ref":"#\/([^"]*)"/g)].map(([, path = '']) =>
    path.split('/').reduce<unknown>((part, name) => (part as Record<string, unknown> | undefined)?.[name], document),
  )
  expect(found).toHaveLength(4)
  expect(found).not.toContain(undefined)
  expect(found).toContainEqual({ type: 'string' })
})
