import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { task } from '../../src/tasks/task.ts'
import { inWords } from '../../src/limits/description.ts'
import { checkKey, limit } from '../../src/limits/limit.ts'
import { bucketName, chosen, label, type PoolMember, splitBucket } from '../../src/limits/pool.ts'
import { forAll } from '../for-all.ts'

const rate = '10/min'
const pool = (...members: (string | PoolMember)[]) => limit('sender', { rate, pool: members })

describe('a label', () => {
  it('is a key that no input needs', () => {
    const perIp = limit('ip', { rate, by: label('ip') })
    expect(perIp).toMatchObject({ label: 'ip', keyed: false, pool: undefined })
    expect(perIp.keyOf({})).toBeUndefined()
    expect(inWords(perIp)).toContain('by label ip')
    expect(() => task('t', { input: z.object({}), limits: [perIp], run: () => undefined })).not.toThrow()
  })

  it.each(['', 'Host', 'a b', 'a@b', 'a:b', '1a', undefined])('cannot be called %j', (name) => {
    expect(() => label(name as string)).toThrow(expect.objectContaining({ code: 'SLUICE_BAD_LABEL' }))
  })

  it('makes the definition of a limit different from one by a field', () => {
    const words = [
      limit('x', { rate }),
      limit('x', { rate, by: 'tenant' }),
      limit('x', { rate, by: label('ip') }),
      limit('x', { rate, by: label('host') }),
      limit('x', { rate, pool: ['a', 'b'] }),
      limit('x', { rate, pool: ['a'] }),
    ].map((one) => inWords(one))
    expect(new Set(words).size).toBe(words.length)
  })
})

describe('a pool', () => {
  it('has members by their keys, and leaves their other fields to the code', async () => {
    process.env['POOL_TEST_TOKEN'] = ' s3cret \n'
    const sender = pool('acct1', {
      key: 'acct2',
      baseUrl: 'https://two.example/v2/',
      secret: { env: 'POOL_TEST_TOKEN' },
      headers: (secret) => ({ authorization: `Bearer ${secret}` }),
      data: { region: 'eu' },
    })
    expect(sender.pool?.map(({ key }) => key)).toEqual(['acct1', 'acct2'])
    const [one, two] = (sender.pool ?? []).map((member) => chosen('sender', member))
    expect(two).toMatchObject({ key: 'acct2', baseUrl: 'https://two.example/v2/', data: { region: 'eu' } })
    expect(await two?.secret()).toBe('s3cret')
    expect(await two?.headers()).toEqual({ authorization: 'Bearer s3cret' })
    expect(await one?.headers()).toEqual({})
    await expect(one?.secret()).rejects.toMatchObject({ code: 'SLUICE_BAD_LIMIT' })
    delete process.env['POOL_TEST_TOKEN']
    await expect(two?.secret()).rejects.toMatchObject({ code: 'SLUICE_SECRET_UNAVAILABLE', retryable: true })
  })

  it.each([
    ['empty', [], 'is empty'],
    ['with one twice', ['a', { key: 'a' }], 'a twice'],
    ['of 65', Array.from({ length: 65 }, (_, i) => `a${i}`), '65 members'],
    ['with a member without key', [{ baseUrl: 'https://a.example' }], 'needs a `key`'],
    ['with a number', [5], 'is a text, or an object'],
    ['with *', ['*'], 'other than "*"'],
    ['with an unknown field', [{ key: 'a', url: 'https://a.example' }], 'has no "url"'],
    ['with a file', [{ key: 'a', baseUrl: 'file:///etc' }], 'baseUrl'],
    ['with a password', [{ key: 'a', baseUrl: 'https://a:b@c.example' }], 'baseUrl'],
    ['with two sources', [{ key: 'a', secret: { env: 'A', read: () => 'b' } }], 'one of them'],
    ['with headers of no secret', [{ key: 'a', headers: () => ({}) }], 'made of a secret'],
  ])('is refused: %s', (_, members, why) => {
    expect(() => limit('sender', { rate, pool: members as string[] })).toThrow(
      expect.objectContaining({ code: 'SLUICE_BAD_POOL', message: expect.stringContaining(why) }),
    )
  })

  it('is refused beside a key', () => {
    const both = { rate, pool: ['a'], by: label('ip') } as const
    expect(() => limit('sender', both)).toThrow(expect.objectContaining({ code: 'SLUICE_BAD_POOL' }))
  })

  it('has members whose keys obey the rules of keys', () => {
    expect(() => pool('a\u001fb')).toThrow(expect.objectContaining({ code: 'SLUICE_BAD_KEY' }))
  })
})

describe('names of buckets', () => {
  it('are parsed into what they were built from, whatever the key', () => {
    const key = fc.string({ minLength: 1, maxLength: 20 }).filter((text) => !/[\u0000\u001f]/.test(text))
    forAll(fc.constantFrom('crm', 'a.b-c_d'), fc.option(key, { nil: undefined }), (name, text) => {
      const bucket = bucketName({ name, label: undefined, pool: undefined }, text)
      expect(splitBucket(bucket)).toEqual({ limit: name, key: text })
      if (text !== undefined) expect(checkKey(name, text)).toBe(text)
    })
    expect(bucketName({ name: 'ip', label: 'host', pool: undefined }, undefined)).toBe('ip@host')
    expect(splitBucket('ip@host')).toEqual({ limit: 'ip', key: undefined })
    expect(bucketName({ name: 'sender', label: undefined, pool: [] }, undefined)).toBe('sender*')
    expect(splitBucket('sender*')).toEqual({ limit: 'sender', key: undefined })
  })
})
