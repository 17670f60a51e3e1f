import { expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { StoreError } from '../../src/core/errors.ts'
import type { Sql } from '../../src/db/store.ts'
import { Definitions } from '../../src/claim/definitions/define.ts'
import { limit, Sluice } from '../../src/index.ts'
import { freshDatabase } from '../servers/database.ts'
import { quietTask } from './engine.ts'
import { definitionCalls } from './engine-parts.ts'

it('a process with many limits defines a few at a time, and one that fails stops no other', async () => {
  let [now, most] = [0, 0]
  const defined: string[] = []
  let broken: string | undefined = 'l3'
  const call = async (name: string, [of]: readonly unknown[] = []) => {
    if (name !== definitionCalls.define) return []
    most = Math.max(most, ++now)
    await new Promise((resolve) => setImmediate(resolve))
    now--
    if (of === broken) throw new Error('not this one')
    defined.push(String(of))
    return [{ [definitionCalls.define]: true }]
  }
  const sql = { call, run: async () => [], query: async () => [] } as unknown as Sql
  const definitions = new Definitions(sql, systemClock)
  const limits = Array.from({ length: 500 }, (_, i) => limit(`l${i}`, { rate: '1/s' }))
  await expect(definitions.define(limits)).rejects.toThrow('not this one')
  broken = undefined
  await definitions.define(limits)
  expect(most).toBe(4)
  expect(new Set(defined).size).toBe(500)
  expect(defined).toHaveLength(500)
})

it('while the store is away, all definitions fail with the first few, and later ones are tried anew', async () => {
  let calls = 0
  let isAway = true
  const call = async (name: string) => {
    if (name !== definitionCalls.define) return []
    calls++
    await new Promise((resolve) => setImmediate(resolve))
    if (isAway) throw new StoreError('SLUICE_STORE_UNREACHABLE', 'away')
    return [{ [definitionCalls.define]: true }]
  }
  const sql = { call, run: async () => [], query: async () => [] } as unknown as Sql
  const definitions = new Definitions(sql, systemClock)
  const limits = Array.from({ length: 100 }, (_, i) => limit(`away${i}`, { rate: '1/s' }))
  const ends = await Promise.allSettled(limits.map((one) => definitions.define([one])))
  expect(ends.filter(({ status }) => status === 'rejected')).toHaveLength(100)
  expect(calls).toBe(4)
  isAway = false
  await definitions.define(limits)
  expect(calls).toBe(104)
})

it('limits are defined while transactions of users hold all of their connections', async () => {
  const { url: store } = await freshDatabase()
  await using sluice = await Sluice.open({ store, connections: 1 })
  await sluice.transaction(() => sluice.define([quietTask('any', [limit('crm', { rate: '100/min' })])]))
  expect(await sluice.limits.show('crm')).toMatchObject({ version: 1 })
})
