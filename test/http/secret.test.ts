/** Secrets by reference: which secrets a request may name, where the values are sent, and where they are not. */
import { expect, test } from 'vitest'
import { redactText } from '../../src/core/redact.ts'
import { requestSchemaWith, sendRequest } from '../../src/http/request.ts'
import type { RequestInput } from '../../src/http/request.ts'
import { type SecretOptions, Secrets } from '../../src/http/secret.ts'
import { httpServer, setup, textOf } from './bench.ts'

type Options = Record<string, SecretOptions>

/** A server that returns everything it received, in its headers too. */
async function echo() {
  const seen: { url: string | undefined; headers: NodeJS.Dict<string | string[]>; body: string }[] = []
  const url = await httpServer(async (request, response) => {
    const heard = { url: request.url, headers: request.headers, body: await textOf(request) }
    seen.push(heard)
    const to = new URL(request.url ?? '', 'http://x').searchParams.get('to')
    if (to !== null) return response.writeHead(307, { location: to }).end()
    const said = {
      'content-type': 'application/json',
      'set-cookie': 'sid=1',
      'x-heard': request.headers['x-key'] ?? '',
    }
    return response.writeHead(request.url === '/bad' ? 400 : 200, said).end(JSON.stringify(heard))
  })
  return { url, seen }
}

function sender(options: Options) {
  const { fetch, abort } = setup()
  const secrets = new Secrets('hook', options)
  return (input: RequestInput) => sendRequest(input, { fetch, jobId: 'job-1', signal: abort.signal, secrets })
}

function issues(options: Options, input: unknown) {
  const result = requestSchemaWith(new Secrets('hook', options))['~standard'].validate(input)
  if (result instanceof Promise) throw new Error('the schema answers at once')
  return result.issues?.map(({ message }) => message)
}

test('secret values replace their references in requests, and appear in nothing that is kept', async () => {
  const { url, seen } = await echo()
  const value = 'top-secret/value "1"'
  const send = sender({ key: { read: async () => value, hosts: [url], in: ['headers', 'query', 'form', 'json'] } })
  const key = { $secret: 'key' }
  const headers = { authorization: { $secret: 'key', prefix: 'Bearer ' }, 'x-key': key, 'x-plain': 'p' }
  const kept = [
    await send({ url: `${url}/a?b=%20c`, headers, query: { key, page: '2' }, json: { deep: [{ key }], plain: 1 } }),
    await send({ url, form: { key, name: 'Ada' } }),
  ]
  expect(seen[0]).toMatchObject({
    headers: { authorization: `Bearer ${value}`, 'x-key': value, 'x-plain': 'p' },
    body: JSON.stringify({ deep: [{ key: value }], plain: 1 }),
  })
  expect(seen[0]?.url).toBe(`/a?b=%20c&${new URLSearchParams({ key: value, page: '2' }).toString()}`)
  expect(Object.fromEntries(new URLSearchParams(seen[1]?.body))).toEqual({ key: value, name: 'Ada' })
  // The vendor repeated all of it, in its headers and its body.
  expect(kept[0]?.headers).toMatchObject({ 'set-cookie': '[redacted]', 'x-heard': '[redacted]' })
  expect(kept[0]?.body).toMatchObject({ headers: { authorization: 'Bearer [redacted]', 'x-plain': 'p' } })
  expect(JSON.stringify(kept)).not.toContain('top-secret')
  const error = await send({ url: `${url}/bad`, headers }).catch((thrown: unknown) => thrown)
  expect(error).toMatchObject({ code: 'SLUICE_HTTP_STATUS', body: expect.not.stringContaining('top-secret') as string })
  expect(redactText(`it said ${value}, and ${encodeURIComponent(value)}`)).toBe('it said [redacted], and [redacted]')
})

test('a secret from a file is sent and hidden without the final line break, also as the name of a field', async () => {
  const value = 'from-a-file-1'
  const url = await httpServer((request, response) => {
    const heard = String(request.headers['x-key'])
    const body = `{"said":"${heard}","${heard}":{"__proto__":{"${heard}":1}}}`
    response.writeHead(200, { 'content-type': 'application/json' }).end(body)
  })
  const send = sender({ key: { read: () => `${value}\n`, hosts: [url] } })
  const { body } = await send({ url, headers: { 'x-key': { $secret: 'key' } } })
  expect(JSON.stringify(body)).toBe('{"said":"[redacted]","[redacted]":{"__proto__":{"[redacted]":1}}}')
  const blank = sender({ key: { read: () => ' \n', hosts: [url] } })
  await expect(blank({ url, headers: { 'x-key': { $secret: 'key' } } })).rejects.toMatchObject({
    code: 'SLUICE_SECRET_UNAVAILABLE',
  })
})

test('a redirect to another origin carries no secrets, and one within the origin keeps them', async () => {
  const [{ url, seen }, other] = [await echo(), await echo()]
  const send = sender({ key: { read: () => 'abcdefgh', hosts: [url] } })
  const headers = { 'x-key': { $secret: 'key' } }
  const to = (target: string) => `${url}/?to=${encodeURIComponent(target)}`
  await expect(send({ url: to(`${other.url}/`), headers, text: 'x' })).rejects.toMatchObject({
    code: 'SLUICE_REDIRECT',
    retryable: false,
  })
  expect(other.seen).toEqual([])
  await send({ url: to('/here'), headers })
  expect(seen.at(-1)).toMatchObject({ url: '/here', headers: { 'x-key': 'abcdefgh' } })
  // A request without secrets is redirected to the other origin.
  await send({ url: to(`${other.url}/`), headers: { 'x-key': 'plain' } })
  expect(other.seen).toHaveLength(1)
})

test('a worker that lacks a secret sends nothing, and another attempt may have it', async () => {
  const { url, seen } = await echo()
  const send = sender({
    unset: { env: 'SLUICE_TEST_SECRET', hosts: [url] },
    broken: { read: () => Promise.reject(new Error('the vault is sealed')), hosts: [url] },
    odd: { read: () => 5 as never, hosts: [url] },
  })
  const says = async (name: string, why: string) =>
    expect(send({ url, headers: { 'x-key': { $secret: name } } })).rejects.toMatchObject({
      code: 'SLUICE_SECRET_UNAVAILABLE',
      retryable: true,
      message: expect.stringContaining(why) as string,
    })
  await says('unset', 'no environment variable SLUICE_TEST_SECRET')
  await says('broken', 'the vault is sealed')
  await says('odd', 'gave no text')
  expect(seen).toEqual([])
  process.env['SLUICE_TEST_SECRET'] = 'from-the-environment'
  try {
    await send({ url, headers: { 'x-key': { $secret: 'unset' } } })
  } finally {
    delete process.env['SLUICE_TEST_SECRET']
  }
  expect(seen[0]?.headers).toMatchObject({ 'x-key': 'from-the-environment' })
})

test('an input cannot send a secret elsewhere, nor name another one', () => {
  const read = () => 'x'
  const secrets: Options = {
    crm: { read, hosts: ['api.crm.example', 'api.crm.example:8443'] },
    old: { env: 'PATH', hosts: ['http://old.example'], in: ['query', 'json'] },
  }
  const crm = { $secret: 'crm' }
  const at = (url: string, input: object) => issues(secrets, { url, ...input })
  for (const url of ['https://api.crm.example/x', 'https://API.CRM.example:8443/'])
    expect(at(url, { headers: { a: crm } })).toBeUndefined()
  for (const url of ['http://api.crm.example/', 'https://api.crm.example.evil/', 'https://api.crm.example:444/'])
    expect(at(url, { headers: { a: crm } })).toEqual([
      `headers.a names the secret crm, which goes only to https://api.crm.example, https://api.crm.example:8443, not to ${new URL(url).origin}`,
    ])
  const url = 'https://api.crm.example/'
  expect(at(url, { json: { a: [crm] } })).toEqual(['json.a.0 names the secret crm, which goes only into headers'])
  expect(
    at('http://old.example', { json: { a: [{ $secret: 'old' }] }, query: { k: { $secret: 'old' } } }),
  ).toBeUndefined()
  expect(at(url, { headers: { a: { $secret: 'PATH' } } })).toEqual([
    'headers.a names the secret PATH, which this task does not have',
  ])
  const form = 'headers.a must be { "$secret": name } or { "$secret": name, "prefix": text }'
  for (const a of [{ $secret: 1 }, { $secret: 'crm', prefix: 1 }, { $secret: 'crm', env: 'PATH' }])
    expect(at(url, { headers: { a } })).toEqual([form])
  expect(at(url, { headers: { a: { $secret: 'crm', prefix: 'x\n' } } })?.[0]).toMatch(/no header can carry$/)
})

test('a task without secrets resolves no references, and similar text in its JSON is plain data', () => {
  const url = 'https://a.example/'
  expect(issues({}, { url, headers: { a: { $secret: 'crm' } } })).toHaveLength(1)
  expect(issues({}, { url, json: { $secret: 'crm' } })).toBeUndefined()
})

test.each([
  [{ hosts: ['a.example'] }, /give `env`/],
  [{ env: 'A', read: () => 'x', hosts: ['a.example'] }, /one of them/],
  [{ env: 'A', hosts: [] }, /`hosts` must list/],
  [{ env: 'A' } as never, /`hosts` must list/],
  [{ env: 'A', hosts: ['*.example'] }, /"\*\.example" is not a host/],
  [{ env: 'A', hosts: ['https://a.example/path'] }, /is not a host/],
  [{ env: 'A', hosts: ['ftp://a.example'] }, /is not a host/],
  [{ env: 'A', hosts: ['u:p@a.example'] }, /is not a host/],
  [{ env: 'A', hosts: ['a.example'], in: ['body'] as never }, /`in` is a list of headers, query, form, json/],
])('an invalid definition of secrets is refused: %j', (secret: SecretOptions, message) => {
  const refused = { code: 'SLUICE_BAD_TASK', message: expect.stringMatching(message) as string }
  expect(() => new Secrets('hook', { key: secret })).toThrow(expect.objectContaining(refused))
})
