/** A role that owns nothing, with the rights that `sluice migrate --grant` gives, sends, works and waits for limits, also after a failover. */
import { randomUUID } from 'node:crypto'
import { Client } from 'pg'
import { expect, it } from 'vitest'
import { grantsOf } from '../../src/db/migrate.ts'
import { limit, Sluice, task } from '../../src/index.ts'
import { freshDatabase } from '../servers/database.ts'
import { until } from '../until.ts'

it('a role that owns nothing needs no more than is written', async () => {
  const { url, adminUrl } = await freshDatabase()
  const owner = await Sluice.open({ store: url })
  await owner.close()
  const role = `app_${randomUUID().replaceAll('-', '')}`
  const admin = new Client(adminUrl)
  await admin.connect()
  await admin.query(`create role ${role} login password 'secret'`)
  const own = new URL(url)
  own.username = role
  own.password = 'secret'
  for (const options of [
    { store: own.href },
    { store: own.href, migrate: false },
    { store: own.href, schema: 'other' },
  ])
    await expect(Sluice.open(options)).rejects.toMatchObject({
      code: 'SLUICE_NO_PRIVILEGE',
      message: expect.stringMatching(/permission denied for (schema|database).*; run `sluice migrate`.* usage on it/),
    })
  await admin.query(grantsOf('sluice', role))
  const app = await Sluice.open({ store: own.href, migrate: false, logLevel: 'silent' })
  try {
    const one = limit('one', { rate: '1/s' })
    const noop = task('noop', { limits: [one], run: () => undefined })
    const run = async () => {
      await app.send(noop, {})
      await until(async () => (await app.dispatchOnce([noop])) === 1, 'it ran')
    }
    await run()
    // Those that have to wait are numbered.
    const leases = await Promise.all([1, 2].map(() => app.takes.take(one)))
    expect(leases).toHaveLength(2)
    // As after a failover.
    await admin.query(`update sluice.epoch set identity = identity || 'x', server_at = server_at - interval '1 hour'`)
    await run()
  } finally {
    await app.close()
    await admin.query(`drop owned by ${role}; drop role ${role}`)
    await admin.end()
  }
})
