/** The tasks of groups of handlers, and their classes. */
import { afterEach, expect, it, vi } from 'vitest'
import { groupsOf } from '../../src/events/groups.ts'
import { event, limit, Sluice } from '../../src/index.ts'
import { freshDatabase } from '../servers/database.ts'

afterEach(() => void vi.unstubAllEnvs())

it('groups retry as often as the environment says, unless their handlers do', () => {
  const plain = event('demo.plain').on(() => undefined)
  const own = event('demo.own').on(() => undefined, { retry: { attempts: 7 } })
  const attempts = () => groupsOf([plain, own], 'a').map(({ task }) => task.retry.attempts)
  const [usual] = attempts()
  vi.stubEnv('SLUICE_EVENT_RETRIES', '2')
  expect(attempts()).toEqual([3, 7])
  vi.stubEnv('SLUICE_EVENT_RETRIES', '0')
  expect(attempts()).toEqual([1, 7])
  vi.stubEnv('SLUICE_EVENT_RETRIES', '')
  expect(attempts()).toEqual([usual, 7])
  for (const odd of ['-1', 'two', '1.5', '1000']) {
    vi.stubEnv('SLUICE_EVENT_RETRIES', odd)
    expect(attempts).toThrow(expect.objectContaining({ code: 'SLUICE_BAD_OPTION' }))
  }
})

it('groups have a class for each service and group, however many types of events there are', async () => {
  const { url: store } = await freshDatabase()
  const got: unknown[] = []
  const types = Array.from({ length: 30 }, (_, n) => event(`demo.type.n${n}`))
  const calls = limit('calls', { rate: '1000/s' })
  const work = types.flatMap((one) => [
    one.on((n) => void got.push(n), { name: `${one.name}.main` }),
    one.on((n) => void got.push(n), { name: `${one.name}.calls`, group: 'calls', limits: [calls] }),
  ])
  const [a, b] = await Promise.all(['a', 'b'].map((service) => Sluice.open({ store, service })))
  if (a === undefined || b === undefined) throw new Error('both are open')
  for (const sluice of [a, b]) await sluice.dispatchOnce(work)
  for (const one of types) await a.events.emit(one, 1)
  for (const sluice of [a, b]) await sluice.dispatchOnce(work)
  expect(got).toHaveLength(4 * types.length)
  const classes = await a.db.query(`select task from sluice.class where task like 'events:%' order by task`)
  expect(classes.map(({ task }) => task)).toEqual([
    'events:a:calls',
    'events:a:main',
    'events:b:calls',
    'events:b:main',
  ])
  for (const sluice of [a, b]) await sluice.close()
})
