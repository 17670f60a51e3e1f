import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'

const src = fileURLToPath(new URL('../../src/', import.meta.url))
const folders = ['absorb', 'amqp', 'bus', 'celery', 'direct', 'outlet', 'remote']

// RabbitMQ accepts arguments that it does not know, and ignores them: with a misspelt one it would lose messages.
it('a connection names only arguments and headers that RabbitMQ knows, or that are ours', () => {
  const files = folders.flatMap((folder) => readdirSync(join(src, folder)).map((file) => join(src, folder, file)))
  const text = files.map((file) => readFileSync(file, 'utf8')).join('\n')
  const named = new Set([...text.matchAll(/['"](x-[a-z-]+)['"]/g)].map(([, name]) => name))
  expect(named).toEqual(
    new Set([
      'x-dead-letter-exchange',
      'x-dead-letter-routing-key',
      'x-dead-letter-strategy',
      'x-delivery-limit',
      'x-expires',
      'x-first-death-queue',
      'x-match',
      'x-max-length',
      'x-message-ttl',
      'x-overflow',
      'x-queue-mode',
      'x-queue-type',
      'x-single-active-consumer',
      'x-sluice-reason',
    ]),
  )
})
