import { describe, expect, it } from 'vitest'
import { addressOf } from '../../src/redis/address.ts'

describe('the URL of a Redis', () => {
  it.each<[string, object]>([
    ['redis://h', { kind: 'server', hosts: [{ host: 'h', port: 6379 }], db: 0, tls: undefined, username: undefined }],
    ['redis://:p%40@[::1]:7/2', { hosts: [{ host: '::1', port: 7 }], password: 'p@', username: undefined, db: 2 }],
    ['rediss://u:p:q@h:1', { username: 'u', password: 'p:q', tls: {} }],
    [
      'redis+sentinel://a,b:7/crm/3?sentinelPassword=x',
      {
        kind: 'sentinel',
        hosts: [{ port: 26379 }, { host: 'b', port: 7 }],
        master: 'crm',
        db: 3,
        sentinelPassword: 'x',
      },
    ],
    ['rediss+cluster://a:1,b:2', { kind: 'cluster', hosts: [{ host: 'a' }, { host: 'b' }], tls: {} }],
  ])('%s is understood', (url, address) => expect(addressOf(url)).toMatchObject(address))

  it.each([
    'http://h',
    'redis://',
    'redis://h/x',
    'redis://h:port',
    'redis://h:65536',
    'redis+sentinel://h:1',
    'redis+cluster://h/1',
    'rediss://h?ca=/nowhere.pem',
    'redis://%zz@h',
  ])('%s is refused', (url) => {
    expect(() => addressOf(url)).toThrow(expect.objectContaining({ code: 'SLUICE_BAD_URL' }))
  })
})
