import { expect, it } from 'vitest'
import { z } from 'zod'
import { shapeOf } from '../../src/cli/shape.ts'

const ofZod = (schema: z.ZodType) => shapeOf(z.toJSONSchema(schema))

it.each([
  ['{ order: integer, note?: string }', z.object({ order: z.int(), note: z.string().optional() })],
  ['{ id: string | null }', z.object({ id: z.string().nullable() })],
  ['"a" | "b"', z.enum(['a', 'b'])],
  ['string[]', z.array(z.string())],
  ['(string | null)[]', z.array(z.string().nullable())],
  ['{ a: { b: { c: … } } }', z.object({ a: z.object({ b: z.object({ c: z.object({ d: z.string() }) }) }) })],
  ['string | number', z.union([z.string(), z.number()])],
  ['{}', z.object({})],
  ['7', z.literal(7)],
])('a payload is shown as %s', (text, schema) => {
  expect(ofZod(schema)).toBe(text)
})

it('a part without a type is shown as any, and one that refers to another part by that name', () => {
  for (const schema of [null, true, {}, { items: {} }]) expect(shapeOf(schema)).toBe('any')
  const kids = { type: 'array', items: { $ref: '#/$defs/node' } }
  expect(shapeOf({ type: 'object', properties: { kids }, required: ['kids'] })).toBe('{ kids: node[] }')
})
