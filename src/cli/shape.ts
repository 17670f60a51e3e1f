/** A JSON Schema in a few words, as TypeScript would write its type. */

type Schema = Readonly<Record<string, unknown>>

const isSchema = (value: unknown): value is Schema =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
const schemasIn = (value: unknown): Schema[] => (Array.isArray(value) ? value.filter(isSchema) : [])

/** Levels that are written; deeper ones are `…`. */
const levelsMax = 3

/** Returns the type of what a schema describes: `{ order: integer, note?: string }`; `any` for a part without a type. */
export function shapeOf(schema: unknown, levels = levelsMax): string {
  if (!isSchema(schema)) return 'any'
  if (levels === 0) return '…'
  const { type, $ref, items, properties, required } = schema
  if ('const' in schema) return JSON.stringify(schema['const'])
  if (Array.isArray(schema['enum'])) return schema['enum'].map((one) => JSON.stringify(one)).join(' | ')
  if (typeof $ref === 'string') return $ref.split('/').at(-1) || 'any'
  const [one, all] = [schemasIn(schema['anyOf'] ?? schema['oneOf']), schemasIn(schema['allOf'])]
  if (one.length > 0) return [...new Set(one.map((each) => shapeOf(each, levels)))].join(' | ')
  if (all.length > 0) return all.map((each) => shapeOf(each, levels)).join(' & ')
  if (type === 'array') {
    const item = shapeOf(items, levels - 1)
    return / [|&] /.test(item) && !item.startsWith('{') ? `(${item})[]` : `${item}[]`
  }
  const names = [type].flat().filter((name) => typeof name === 'string')
  if (!isSchema(properties)) return names.join(' | ') || 'any'
  const needed = new Set([required].flat())
  const fields = Object.entries(properties).map(
    ([name, field]) => `${name}${needed.has(name) ? '' : '?'}: ${shapeOf(field, levels - 1)}`,
  )
  return fields.length === 0 ? '{}' : `{ ${fields.join(', ')} }`
}
