import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { freshDatabase } from '../servers/database.ts'
import { createProject, objects, type Project } from './program.ts'

// `gated` takes rows beyond 1,200 only when the file `open` exists: until then an import stands still in the middle.
const tasks = `
import { existsSync } from 'node:fs'
import { limit, task } from 'sluice'
import { z } from 'zod'
const crm = limit('crm', { rate: '1000000/s', by: 'accountId' })
const contact = z.object({ accountId: z.string().min(1), n: z.number() })
export const sync = task('sync', { input: contact, limits: [crm], run: () => 'synced' })
export const gated = task('gated', {
  input: contact.refine(async ({ n }) => {
    for (let told = false; n > 1200 && !existsSync('open'); told = true) {
      if (!told) console.error('standing at', n)
      await new Promise((resolve) => setTimeout(resolve, 10))
    }
    return true
  }),
  run: () => 1,
})
export const fails = task('fails', { input: contact, retry: { attempts: 1 }, run: ({ n }) => { throw new Error(n % 2 === 0 ? 'the vendor said 500' : 'no, "never"') } })
`

const stores = [
  { name: 'PostgreSQL', env: async () => ({ DATABASE_URL: (await freshDatabase()).url }) },
  { name: 'the embedded engine', env: async () => ({}) },
]

for (const store of stores) {
  describe(`on ${store.name}`, () => {
    let project: Project
    beforeEach(async () => {
      project = createProject({ SLUICE_TASKS: 'tasks.ts', ...(await store.env()) })
      project.write('tasks.ts', tasks)
    })
    afterEach(() => project.close())
    const json = async (...args: string[]) => objects((await project.run([...args, '--json'])).out)
    const warm = async (...args: string[]) => objects((await project.runWarm([...args, '--json'])).out)

    it('an import that was killed in the middle and run again records each row exactly once', async () => {
      const rows = Array.from({ length: 1_600 }, (_, n) => `a${n % 7},${n}`)
      project.write('contacts.csv', ['accountId,n', ...rows].join('\n'))
      const args = ['send', 'gated', '--from', 'contacts.csv', '--tag', 'file']
      const first = project.start(args)
      await first.says('standing at 1201')
      first.signal('SIGKILL')
      await first.ended
      project.write('open', '')
      // The second batch was being written while rows of the third were read.
      const [again] = (await json(...args)) as { sent: number; known: number; bad: number }[]
      expect(again).toMatchObject({ sent: 1_600 - (again?.known ?? 0), bad: 0 })
      expect([500, 1_000]).toContain(again?.known)
      const found = await json('jobs', 'export', '--tag', 'file')
      expect(found.map(({ input }) => (input as { n: number }).n)).toEqual(rows.map((_, n) => n))
    }, 300_000)

    it.runIf(store.name === 'PostgreSQL')(
      'send --from lists bad rows by line and keeps them for correction, and filters select jobs to retry, cancel, reprioritise and export',
      async () => {
        project.write('contacts.csv', 'accountId;n;note\na1;1;x\na1;two;x\n;3;x\na2;4;"x;\ny"\na2;5\na1;6;x\n')
        const sent = await project.run(['send', 'fails', '--from', 'contacts.csv', '--bad-rows', 'bad.csv'])
        expect(sent).toMatchObject({ code: 1, out: '3 sent, 0 sent before, 3 bad\n' })
        expect(sent.err).toMatch(
          /line 3: .*n: .*\nline 4: .*accountId.*\nline 7: it has 2 cells under 3 columns\n.*correct bad.csv/,
        )
        expect(readFileSync(join(project.dir, 'bad.csv'), 'utf8')).toBe('accountId;n;note\na1;two;x\n;3;x\na2;5\n')
        project.write('more.ndjson', '{"accountId":"a1","n":8}\n{"accountId":"a1"}\n{"accountId":"a3","n":8}\n')
        const strict = await project.run([
          'send',
          'sync',
          '--from',
          'more.ndjson',
          '--idempotency-key',
          '{accountId}/{n}',
          '--on-error',
          'stop',
          '--priority',
          '3',
        ])
        expect(strict).toMatchObject({
          code: 1,
          out: '',
          err: expect.stringMatching(/sends the rest\nerror SLUICE_BAD_ROW: line 2: .*no n/),
        })
        const input = '{"accountId":"a1","n":8}\n{"accountId":"a3","n":9}\n'
        const from = ['send', 'sync', '--from', '-', '--idempotency-key', '{accountId}/{n}']
        expect(await project.run([...from, '--json'], { input })).toMatchObject({
          code: 0,
          out: '{"sent":1,"known":1,"bad":0}\n',
        })
        expect(await project.run([...from, '--dry-run'], { input })).toMatchObject({ code: 0, out: '2 good, 0 bad\n' })

        // A command without a filter, or without confirmation, does nothing.
        expect(await project.runWarm(['cancel'])).toMatchObject({
          code: 2,
          err: expect.stringContaining('SLUICE_EMPTY_FILTER'),
        })
        const asked = await project.runWarm(['cancel', '--task', 'sync'])
        expect(asked).toMatchObject({
          code: 2,
          err: expect.stringMatching(/SLUICE_NOT_CONFIRMED: 2 jobs would be cancelled; .*--yes/),
        })
        expect(await project.runWarm(['cancel', '--task', 'sync', '--dry-run'])).toMatchObject({
          code: 0,
          out: '2 jobs would be cancelled\n',
        })
        expect(await warm('reprioritise', '--limit', 'crm', '--key', 'a3', '--priority', '-5', '--yes')).toEqual([
          { reprioritised: 1, stopped: false },
        ])
        const [late] = await warm('jobs', '--input', 'n=9', '--limit', 'crm', '--key', 'a3')
        expect(late).toMatchObject({ task: 'sync', priority: -5 })
        expect(await project.run(['reprioritize', String(late?.['id']), '--priority', '2'])).toMatchObject({
          code: 0,
          out: `${String(late?.['id'])} reprioritised\n`,
        })
        expect(await warm('cancel', '--task', 'sync', '--since', '1h', '--yes')).toEqual([
          { cancelled: 2, stopped: false },
        ])

        await dispatchAll()
        const failed = await project.run(['jobs', 'export', '--state', 'failed', '--csv', '--error', 'NEVER'])
        const [heading = '', ...lines] = failed.out.trim().split('\n')
        expect(heading).toContain('id,state,reason,task')
        expect(lines).toHaveLength(1)
        expect(lines[0]).toContain('""message"":""no, \\""never\\')
        expect(await project.runWarm(['jobs', 'export', '--csv', '--json'])).toMatchObject({
          code: 2,
          out: '',
          err: expect.stringContaining('--csv or --json; not both'),
        })
        expect(await project.runWarm(['jobs', 'export', '--state', 'failed', '--error', 'nobody says'])).toEqual({
          code: 0,
          out: '',
          err: 'no job matches\nnext: `sluice jobs export --help`\n',
        })
        expect(
          await warm(
            'retry',
            '--task',
            'fails',
            '--reason',
            'exhausted',
            '--error',
            'vendor said',
            '--since',
            '2h',
            '--yes',
          ),
        ).toEqual([{ retried: 2, stopped: false }])
        expect(await warm('jobs', '--task', 'fails', '--queue', 'default')).toHaveLength(2)
        expect(await warm('jobs', '--task', 'fails', '--state', 'scheduled')).toEqual([])
        for (const states of [['scheduled,waiting'], ['scheduled', '--state', 'waiting']])
          expect(await warm('jobs', '--task', 'fails', '--state', ...states)).toHaveLength(2)
      },
      300_000,
    )

    /** A cold process may return a grant that is too old. */
    async function dispatchAll(): Promise<void> {
      for (;;) {
        await project.run(['dispatch', '--once'])
        if ((await warm('jobs')).length === 0) return
      }
    }
  })
}

describe('send --from', () => {
  let project: Project
  beforeEach(async () => {
    project = createProject({ SLUICE_TASKS: 'tasks.ts', DATABASE_URL: (await freshDatabase()).url })
    project.write('tasks.ts', tasks)
    project.write('rows.csv', 'accountId,n\na1,1\n')
  })
  afterEach(() => project.close())

  it('rejects options that exclude each other before it reads a row', async () => {
    const refused: [string[], string][] = [
      [['{}', '--from', 'rows.csv'], 'SLUICE_BAD_OPTION'],
      [
        ['--from', 'rows.csv', '--idempotency-key', 'contact'],
        'SLUICE_BAD_OPTION: --idempotency-key "contact" names no column; the columns are accountId, n',
      ],
      [['--from', 'rows.csv', '--bad-rows', './rows.csv'], 'SLUICE_BAD_OPTION'],
      [['--from', 'rows.csv', '--delay', 'soon', '--dry-run'], 'SLUICE_BAD_DURATION'],
    ]
    const ran = await Promise.all(refused.map(([args]) => project.run(['send', 'sync', ...args])))
    for (const [i, [, says]] of refused.entries())
      expect(ran[i]).toMatchObject({ code: 2, out: '', err: expect.stringContaining(says) })
  })

  it('without code names the ways to give it, and the one that needs none', async () => {
    const ran = await project.run(['send', 'sync', '--from', 'rows.csv'], { env: { SLUICE_TASKS: '' } })
    expect(ran).toMatchObject({
      code: 1,
      out: '',
      err: expect.stringContaining('name the file that exports it: --tasks'),
    })
    expect(ran.err).toContain("`select sluice.send('sync', '{…}')`")
  })

  it('refuses what an export wrote for people: whole records, and inputs without their secrets', async () => {
    project.write(
      'tasks.ts',
      `import { task } from 'sluice'\nexport const any = task('any', { run: () => { throw new Error('no') }, retry: { attempts: 1 } })`,
    )
    await project.run(['send', 'any', '{"url":"https://me:secret@crm.example"}'])
    await project.run(['dispatch', '--once'])
    const { out } = await project.run(['jobs', 'export', '--state', 'failed'])
    const [record] = objects(out)
    project.write('records.ndjson', out)
    project.write('inputs.ndjson', JSON.stringify(record?.['input']))
    const whole = await project.run(['send', 'any', '--from', 'records.ndjson'])
    expect(whole).toMatchObject({ code: 1, err: expect.stringContaining('send its field `input` alone') })
    const left = 'has [redacted] where a secret was left out'
    for (const args of [['--from', 'inputs.ndjson'], [JSON.stringify(record?.['input'])]])
      expect((await project.run(['send', 'any', ...args])).err).toContain(left)
    const edited = await project.run(['jobs', 'edit', String(record?.['id']), JSON.stringify(record?.['input'])])
    expect(edited.err).toContain(left)
  })

  it('ends on Ctrl-C after the batch in hand, and the same command sends the rest', async () => {
    project.write('rows.csv', ['accountId,n', ...Array.from({ length: 1_700 }, (_, n) => `a,${n}`)].join('\n'))
    const args = ['send', 'gated', '--from', 'rows.csv', '--json']
    const run = project.start(args)
    await run.says('standing at 1201')
    run.signal('SIGINT')
    project.write('open', '')
    const { code, out, err } = await run.ended
    expect(code).toBe(1)
    expect(err).toContain('stopped; the same command')
    const { sent = 0 } = (objects(out)[0] ?? {}) as { sent?: number }
    expect(sent).toBeGreaterThan(1_000)
    expect(sent).toBeLessThan(1_700)
    expect(objects((await project.run(args)).out)).toEqual([{ sent: 1_700 - sent, known: sent, bad: 0 }])
  })
})
