import { afterAll, beforeAll, expect, it } from 'vitest'
import type { Verification } from '../../src/index.ts'
import { inWords } from '../../src/cli/verify.ts'
import { Sluice } from '../../src/sluice.ts'
import { freshDatabase } from '../servers/database.ts'
import { createProject, objects, type Project, tasksFile } from './program.ts'

let project: Project
let sluice: Sluice

beforeAll(async () => {
  const { url } = await freshDatabase()
  sluice = await Sluice.open({ store: url })
  project = createProject({ DATABASE_URL: url })
  project.write('tasks.ts', tasksFile)
  project.write(
    'sluice.config.ts',
    `import { defineConfig } from 'sluice'
import * as tasks from './tasks.ts'
export default defineConfig({ tasks: [tasks.syncContact] })`,
  )
})
afterAll(async () => {
  await sluice.close()
  await project.close()
})

it('verify proves limits by the name of their guarantee, shows an exceeded window, and then exits with 1', async () => {
  for (const accountId of ['a', 'a', 'b'])
    expect(await project.run(['send', 'sync-contact', JSON.stringify({ accountId })])).toMatchObject({ code: 0 })
  expect(await project.run(['dispatch', '--once'])).toMatchObject({ code: 0 })
  const proved = await project.run(['verify'])
  expect(proved).toMatchObject({ code: 0, err: expect.stringContaining('no window was exceeded: ') })
  expect(proved.out).toBe('proved    crm (version 1): safe rate 100/min: busiest 60.2 s: 2 of 100 allowed (2 keys)\n')

  await sluice.db.query(`insert into sluice.ledger (bucket, n, at, debt, parts, version, units, hold, claim)
    select l.bucket, l.n + g, l.at, debt, parts, version, 1, hold, gen_random_uuid()
    from (select l.* from sluice.ledger l join sluice.bucket b on b.id = l.bucket where b.key = 'b' order by n desc limit 1) l,
         generate_series(1, 10) g`)
  const shown = await project.runWarm(['verify', '--limit', 'crm', '--since', '1h'])
  expect(shown).toMatchObject({ code: 1, err: expect.stringContaining('not proved') })
  expect(shown.out).toMatch(/^EXCEEDED {2}crm .*safe rate.*; 1 windows? held more/)
  expect(shown.out).toMatch(
    /crm for b: 11 granted where 10 are allowed \(safe rate\), from \S+Z to \S+Z:\n {2}\S+Z {2}1 {2}by \S+ jobs \S+/,
  )
  const json = await project.runWarm(['verify', '--json'])
  const [proof] = objects(json.out) as unknown as Verification[]
  expect(json.code).toBe(1)
  expect(proof).toMatchObject({ isProved: false, exceeded: [{ limit: 'crm', key: 'b', units: 11, most: 10 }] })

  expect(await project.runWarm(['verify', '--limit', 'cmr'])).toMatchObject({
    code: 1,
    err: expect.stringContaining('SLUICE_NO_SUCH_LIMIT'),
  })
  expect(await project.runWarm(['verify', '--until', 'yesterday'])).toMatchObject({
    code: 2,
    err: expect.stringContaining('SLUICE_BAD_DURATION'),
  })
})

it('verify explains more units than the rule that do not exceed the guarantee', () => {
  const of = { limit: 'tpm', version: 1, guarantee: 'exact window', rate: '30000/min', most: 30_000 } as const
  const line = (worst: number) => inWords({ ...of, windowMs: 60_200, worst, exceeded: 0, keys: 1 })
  expect(line(31_200)).toContain(
    '31200 of 30000 allowed (above it: what jobs used beyond their grants, or what was allowed before a change) (1 key)',
  )
  expect(line(30_000)).toContain('30000 of 30000 allowed (1 key)')
})

it('verify shows money as money', () => {
  const of = { limit: 'spend', version: 1, guarantee: 'quota', rate: '2 USD/day (UTC)' } as const
  expect(inWords({ ...of, most: 2_000_000, windowMs: 86_400_000, worst: 279_000, exceeded: 0, keys: 1 })).toBe(
    'spend (version 1): quota 2 USD/day (UTC): busiest period: 0.279 USD of 2 USD allowed (1 key)',
  )
})
