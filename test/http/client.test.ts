import { createRequire } from 'node:module'
import { expect, it } from 'vitest'
import { loadClient } from '../../src/http/client.ts'

const undici = createRequire(import.meta.url)('undici') as typeof import('undici')

it('the parts of the HTTP client that are loaded alone are those that the package exports', async () => {
  const { fetch, ...parts } = loadClient()
  const { Agent, FormData, Headers, Pool, Request, Response } = undici
  expect(parts).toStrictEqual({ Agent, FormData, Headers, Pool, Request, Response })
  // The package wraps this one, to add its caller to the stack of errors.
  expect(await fetch('data:text/plain,read')).toBeInstanceOf(Response)
})
