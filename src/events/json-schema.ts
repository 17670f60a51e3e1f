/** JSON Schemas of payloads, for the catalogue. */
import type { AnyEvent } from './event.ts'

const target = 'draft-2020-12'

/** Returns the JSON Schema of an event's payload; undefined: its schema gives none. */
export function jsonSchemaOf({ schema, jsonSchema }: AnyEvent): unknown {
  if (jsonSchema !== undefined) return jsonSchema
  const { jsonSchema: from } = schema['~standard'] as { jsonSchema?: { input?: (options: object) => unknown } }
  try {
    return from?.input?.({ target })
  } catch {
    return undefined // it has parts that JSON Schema cannot express
  }
}
