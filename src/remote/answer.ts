/** Finds the vendor's answer in a Python exception. Pure. */
import { isRecord } from '../celery/json.ts'
import type { CeleryTaskError } from '../celery/result.ts'

/** The parts of an answer that a response of `fetch` has, too. */
export interface PythonAnswer {
  status: number
  headers: Readonly<Record<string, string>>
}

/** The texts of HTTP clients' errors: urllib, requests, httpx, aiohttp. */
const texts = [
  /\bHTTP Error (\d{3})\b/,
  /^(\d{3}) (?:Client|Server) Error\b/,
  /\b(?:Client|Server) error '(\d{3}) /,
  /^(\d{3}), message=/,
]

/**
 * Returns the answer. That is a status among the exception's arguments that is followed by headers, or an object that
 * has both, as the exception in examples/celery has. Otherwise it is the status that a well-known client has written
 * into the exception's text. Undefined: the exception is about something else.
 */
export function answerIn({ args, traceback }: Pick<CeleryTaskError, 'args' | 'traceback'>): PythonAnswer | undefined {
  for (const [at, one] of args.entries()) {
    const next = args[at + 1]
    if (isStatus(one) && isRecord(next)) return { status: one, headers: headersOf(next) }
    if (!isRecord(one)) continue
    const status = one['status'] ?? one['status_code']
    if (isStatus(status)) return { status, headers: headersOf(one['headers']) }
  }
  // Not all exceptions pass their text on as an argument; the last line of the traceback has it, after its type.
  const last = traceback
    ?.trimEnd()
    .split('\n')
    .at(-1)
    ?.replace(/^[\w.]+: /, '')
  for (const text of [...args, last])
    for (const pattern of texts) {
      const status = typeof text === 'string' ? Number(pattern.exec(text)?.[1]) : Number.NaN
      if (isStatus(status)) return { status, headers: {} }
    }
  return undefined
}

function isStatus(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) >= 400 && (value as number) < 600
}

function headersOf(value: unknown): Record<string, string> {
  if (!isRecord(value)) return {}
  const usable = Object.entries(value).filter(([, one]) => typeof one === 'string' || typeof one === 'number')
  return Object.fromEntries(usable.map(([name, one]) => [name, String(one)]))
}
