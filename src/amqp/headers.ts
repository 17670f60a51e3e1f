/** Integers in headers, with the types that every client of RabbitMQ reads alike. */

/** A value of a header. Integers are exact from -2^53 to 2^53, a bigint from -2^63 to 2^63 - 1. */
export type HeaderValue =
  | string
  | number
  | bigint
  | boolean
  | null
  | Buffer
  | readonly HeaderValue[]
  | { readonly [name: string]: HeaderValue }

/** Headers of a message, or arguments of a queue. */
export type Headers = Readonly<Record<string, HeaderValue>>

const isInt32 = (value: number | bigint) => value >= -(2 ** 31) && value < 2 ** 31

/**
 * Returns headers with a type for each integer: int32, beyond it int64. The client itself would choose the shortest type, and
 * Celery's client misreads the types of 8 and 16 bits (py-amqp up to 5.3), which ends its connection.
 */
export function typeHeaders(headers: Headers): Record<string, unknown> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, typeValue(value)]))
}

function typeValue(value: HeaderValue): unknown {
  if (typeof value === 'bigint')
    return {
      '!': isInt32(value) ? 'int32' : 'int64',
      value: Number.isSafeInteger(Number(value)) ? Number(value) : value,
    }
  if (typeof value === 'number') {
    if (!Number.isSafeInteger(value)) return { '!': 'double', value }
    return { '!': isInt32(value) ? 'int32' : 'int64', value }
  }
  if (typeof value !== 'object' || value === null || Buffer.isBuffer(value)) return value
  // As the client itself has read a type that JavaScript lacks, in a message that is sent on: a timestamp, for example.
  if ('!' in value) return value
  return Array.isArray(value) ? value.map(typeValue) : typeHeaders(value as Headers)
}
