import { describe, expect, it } from 'vitest'
import { addressOf } from '../../src/amqp/address.ts'

describe('the URL of a RabbitMQ', () => {
  it.each<[string, object]>([
    [
      'amqp://h',
      { hosts: [{ host: 'h', port: 5672 }], vhost: '/', username: 'guest', password: 'guest', heartbeatS: 3 },
    ],
    ['amqp://u:p%40:q@h:7/%2f', { hosts: [{ port: 7 }], username: 'u', password: 'p@:q', vhost: '/', tls: undefined }],
    ['amqp://h//', { vhost: '/' }],
    // As the first page of Celery's documentation has it.
    ['pyamqp://guest@h//', { hosts: [{ port: 5672 }], username: 'guest', password: 'guest', vhost: '/' }],
    ['amqp://u:@h', { username: 'u', password: '' }],
    [
      'amqps://u@[::1]/crm?heartbeat=10',
      { hosts: [{ host: '::1', port: 5671 }], vhost: 'crm', tls: {}, heartbeatS: 10 },
    ],
    [
      'amqp://a,b:7/crm',
      {
        hosts: [
          { host: 'a', port: 5672 },
          { host: 'b', port: 7 },
        ],
      },
    ],
  ])('%s is understood', (url, address) => expect(addressOf(url)).toMatchObject(address))

  it('a Redis is answered with what needs a RabbitMQ, and where the URL of a Redis belongs', () => {
    for (const url of ['redis://h:6379/0', 'rediss+sentinel://h/master'])
      expect(() => addressOf(url)).toThrow(/this is a Redis\. .+ CELERY_BROKER_URL/)
  })

  it.each([
    'http://h',
    'amqp://',
    'amqp://h:port',
    'amqp://h:99999',
    'amqp://h/a/b',
    'amqp://%zz@h',
    'amqp://h?heartbeat=0',
    'amqps://h?ca=/nowhere.pem',
  ])('%s is rejected', (url) =>
    expect(() => addressOf(url)).toThrow(expect.objectContaining({ code: 'SLUICE_BAD_URL' })),
  )
})
