/**
 * Loads the HTTP client. A process that makes no calls does without it, and one that makes some does without most of it: all of
 * undici, and Node's own copy of it, which undici loads for its cookies, take twice as long as what is used here.
 */
import { createRequire } from 'node:module'

type Client = Pick<
  typeof import('undici'),
  'Agent' | 'FormData' | 'Headers' | 'Pool' | 'Request' | 'Response' | 'fetch'
>

const require = createRequire(import.meta.url)
let loaded: Client | undefined

/** Returns the client; the first call loads it, so make it before there is a grant whose life that would shorten. */
export function loadClient(): Client {
  loaded ??= load()
  return loaded
}

/** The paths hold for the version that package.json names. */
function load(): Client {
  const part = (path: string) => require(`undici/lib/${path}.js`) as unknown
  const { fetch } = part('web/fetch/index') as Pick<Client, 'fetch'>
  const { FormData } = part('web/fetch/formdata') as Pick<Client, 'FormData'>
  const { Headers } = part('web/fetch/headers') as Pick<Client, 'Headers'>
  const { Request } = part('web/fetch/request') as Pick<Client, 'Request'>
  const { Response } = part('web/fetch/response') as Pick<Client, 'Response'>
  const Agent = part('dispatcher/agent') as Client['Agent']
  const Pool = part('dispatcher/pool') as Client['Pool']
  return { Agent, FormData, Headers, Pool, Request, Response, fetch }
}
