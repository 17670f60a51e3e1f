/** The tree of commands, without a store: help, examples, completion, hints, and tables that fit. */
import { Command } from 'commander'
import { beforeAll, describe, expect, it } from 'vitest'
import { aligned } from '../../src/cli/columns.ts'
import { completions } from '../../src/cli/completion.ts'
import { examples } from '../../src/cli/examples.ts'
import { meant } from '../../src/cli/hints.ts'
import { nearest } from '../../src/core/nearest.ts'
import { build } from '../../src/cli/program.ts'
import { asCalled } from '../../src/cli/output.ts'
import { givenOptions, nameOf } from '../../src/cli/settings.ts'
import { workFlags } from '../../src/cli/work.ts'

let program: Command
beforeAll(async () => void (program = await build(['demo'])))

function pathsOf(command: Command, path: readonly string[] = []): string[] {
  const inner = command.commands.filter((one) => one.name() !== 'complete' && one.name() !== 'help')
  return [
    ...(path.length === 0 ? [] : [path.join(' ')]),
    ...inner.flatMap((one) => pathsOf(one, [...path, one.name()])),
  ]
}

function find(path: readonly string[]): Command {
  return path.reduce((above, name) => above.commands.find((one) => one.name() === name) as Command, program)
}

/** The words of a line of a shell. */
function wordsOf(line: string): string[] {
  return [...line.matchAll(/'([^']*)'|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain ?? '')
}

describe('help', () => {
  it('has examples for every command, and each example is a command that parses', async () => {
    expect(Object.keys(examples).toSorted()).toEqual(pathsOf(program).toSorted())
    for (const [path, lines] of Object.entries(examples))
      for (const line of lines) {
        const words = wordsOf(line.replace(/^source <\((.*)\)$/, '$1').replace(/ > .*$/, ''))
        const fresh = await build(['demo'])
        const command = path
          .split(' ')
          .reduce((above, name) => above.commands.find((one) => one.name() === name) as Command, fresh)
        let isRun = false
        for (const one of [command, ...command.commands]) one.action(() => void (isRun = true))
        expect(words[0]).toBe('sluice')
        await fresh.parseAsync(words.slice(1), { from: 'user' })
        expect(isRun, line).toBe(true)
      }
  })

  it('of every command names the flags that all commands have', () => {
    for (const path of pathsOf(program)) {
      const text = find(path.split(' ')).helpInformation()
      expect(text, path).toContain('--store')
      expect(text, path).toContain('--json')
    }
  })

  it('of every command, also one below another, is what `sluice help` and its words print', async () => {
    for (const path of pathsOf(program)) {
      const words = path.split(' ')
      let text = ''
      find(words).configureOutput({ writeOut: (out) => void (text += out) })
      await expect(program.parseAsync(['help', ...words], { from: 'user' })).rejects.toMatchObject({ exitCode: 0 })
      expect(text).toMatch(new RegExp(`^Usage: sluice ${words.join(' ')}[ |]`))
    }
    const wrong = program.parseAsync(['help', 'limits', 'sets'], { from: 'user' })
    await expect(wrong).rejects.toMatchObject({
      code: 'SLUICE_USAGE',
      message: expect.stringMatching(/^`sluice limits` has no command "sets"; its commands are .*\bset\b/),
    })
  })

  it('of a worker begins with what most people need', () => {
    const [usual = '', ...rest] = find(['work']).helpInformation().split('Options with RabbitMQ and Celery:')
    expect(rest).toHaveLength(1)
    for (const flag of ['--tasks', '--concurrency', '--queues', '--grace', '--rate', '--label'])
      expect(usual).toContain(flag)
    expect(usual).not.toMatch(/--(celery|broker|direct|park)/)
  })

  it('marks the options that a command cannot do without', () => {
    const lines = find(['pause']).helpInformation().split('\n')
    expect(lines.filter((line) => line.includes('(required)'))).toEqual([expect.stringContaining('--reason <text>')])
  })

  it('uses each flag for one thing, and names each thing by one flag', () => {
    const all = pathsOf(program).flatMap((path) => find(path.split(' ')).options.map(({ flags }) => flags))
    const forms = [...new Set(all.map((flags) => flags.replace(/^-\w, /, '')))]
    const of = (name: string) => forms.filter((flags) => flags === name || flags.startsWith(`${name} `))
    const names = [...new Set(forms.map((flags) => flags.split(' ')[0] ?? ''))]
    // A worker has one rate, a limit several; the reason of a job's state is a word, that of an operator a sentence.
    expect(names.filter((name) => of(name).length > 1).toSorted()).toEqual(['--rate', '--reason'])
    expect([of('--limit'), of('--key'), of('--max')]).toEqual([['--limit <name>'], ['--key <key>'], ['--max <n>']])
    for (const path of pathsOf(program)) {
      const { options, registeredArguments } = find(path.split(' '))
      const isOfLimit =
        options.some(({ long }) => long === '--limit') || registeredArguments.some((one) => one.name() === 'limit')
      if (options.some(({ long }) => long === '--key')) expect(isOfLimit, `${path} --key`).toBe(true)
    }
  })
})

describe('completion', () => {
  it.each([
    [['ja'], []],
    [['wh'], ['why']],
    [
      ['limits', 'un'],
      ['unset', 'unpin'],
    ],
    [['jobs', '--stat'], ['--state']],
    [['jobs', '--state', 'fa'], ['failed']],
    [['jobs', '--state', 'failed,do'], ['failed,done']],
    [['jobs', '--state', 'done,failed,do'], []],
    [['jobs', '--state', 'failed', '--max'], ['--max']],
    [['--store', 'x', 'stat'], ['status']],
    [
      ['reprioritize', '--t'],
      ['--task', '--tag'],
    ],
    [
      ['completion', ''],
      ['bash', 'zsh', 'fish'],
    ],
    [['why', '--js'], ['--json']],
    [
      ['help', 'limits', 'un'],
      ['unset', 'unpin'],
    ],
  ])('after %j offers %j', (words, found) => {
    expect(completions(program, words).toSorted()).toEqual(found.toSorted())
  })
})

it.each([
  ['enqueue', 'send'],
  ['ps', 'status'],
  ['workers', 'status --members'],
  ['worker', 'work'],
  ['list', 'jobs'],
  ['inspect', 'jobs show <id>'],
  ['purge', 'cancel'],
  ['stauts', 'status'],
  ['frobnicate', undefined],
])('%s is %s here', (word, command) => {
  expect(meant(word, program)).toBe(command)
})

it.each([
  ['cmr', 'crm'],
  ['sync-contacts', 'sync-contact'],
  ['x', undefined],
])('the known name nearest to %s is %s', (name, found) => {
  expect(nearest(name, ['crm', 'sync-contact', 'mail'])).toBe(found)
})

it('tables fit 60 to 200 columns, and keep the end of an id', () => {
  const id = '01a20698-4721-70ef-b834-839e080c99ef'
  const rows = [
    ['ID', 'STATE', 'TASK', 'ERROR'],
    [id, 'failed', 'a-task-with-a-long-name', 'the vendor said 503, and a lot more '.repeat(6)],
  ]
  for (const width of [60, 80, 120, 200])
    for (const line of aligned(rows, width)) expect(line.length).toBeLessThanOrEqual(width)
  // Ids that were made together begin alike, so the end is shown.
  expect(aligned(rows, 60)[1]).toMatch(/^…\S*839e080c99ef /)
  expect(aligned(rows, 200)[1]).toContain(id)
  expect(aligned(rows)[1]).toContain(rows[1]?.at(-1)?.trimEnd())
  expect(aligned(Array.from({ length: 150_000 }, () => ['a', 'b']))).toHaveLength(150_000)
})

it('a table that is too wide loses its spare columns first, and keeps the cells of the others whole', () => {
  const rows = [
    ['TASK', 'SENT', 'DONE', 'STOPPED BY'],
    ['call', '150', '12', 'crm used up for a1'],
  ]
  const spare = ['SENT', 'DONE']
  expect(aligned(rows, 40, spare)).toEqual(['TASK  SENT  DONE  STOPPED BY', 'call  150   12    crm used up for a1'])
  expect(aligned(rows, 31, spare)).toEqual(['TASK  DONE  STOPPED BY', 'call  12    crm used up for a1'])
  expect(aligned(rows, 24, spare)).toEqual(['TASK  STOPPED BY', 'call  crm used up for a1'])
  expect(aligned(rows, undefined, spare)).toEqual(aligned(rows))
})

it('a table that is too wide for readable cells is printed as blocks, with all columns and texts', () => {
  const id = '01a20698-4721-70ef-b834-839e080c99ef'
  const error = 'the vendor said 503, and a lot more'
  const rows = [
    ['ID', 'STATE', 'TASK', 'QUEUE', 'ATTEMPT', 'AGE', 'ERROR'],
    [id, 'failed', 'sync-contact', 'default', '3', '5 min', error],
    [id, 'running', 'sync-contact', 'default', '1', '2 s', ''],
  ]
  expect(aligned(rows, 80)).toHaveLength(3)
  const lines = aligned(rows, 40, ['QUEUE'], (heading) => `<${heading}>`)
  expect(lines).toEqual([
    `<ID       >…${id.slice(-30)}`,
    '<STATE    >failed',
    '<TASK     >sync-contact',
    '<QUEUE    >default',
    '<ATTEMPT  >3',
    '<AGE      >5 min',
    `<ERROR    >${error}`,
    '',
    `<ID       >…${id.slice(-30)}`,
    '<STATE    >running',
    '<TASK     >sync-contact',
    '<QUEUE    >default',
    '<ATTEMPT  >1',
    '<AGE      >2 s',
  ])
})

it('a suggested command names the store, and leaves its URL to the reader if that has a secret', () => {
  expect(asCalled('`sluice work`', { store: 'postgres://h/d' })).toContain('--store postgres://h/d')
  expect(asCalled('`sluice work` ', { store: 'postgres://u:pw@h/d', schema: 'own' })).toMatch(
    /sluice --store <its URL> --schema own work/,
  )
})

it('the options that were given are written as they were, but for one', () => {
  const given = ['--rate', '5/s', '--label', 'ip=1', '--label', 'zone=x', '--celery', 'a,b', '--celery-events']
  const work = workFlags(new Command('work')).parse(['-c', '4', ...given, '--tasks', 'tasks.ts'], { from: 'user' })
  expect(givenOptions(work, '--tasks')).toEqual(['--concurrency', '4', ...given])
})

it.each([
  ['postgres://u:secret@h:5432/d', 'h:5432/d'],
  ['postgres:///d?host=/run/postgresql&user=u', '/run/postgresql/d'],
  ['postgres://u@%2Frun%2Fpostgresql/d', '/run/postgresql/d'],
])('the name of a store shows where it is, also behind a socket: %s', (store, name) => {
  expect(nameOf({ store, schema: 'sluice' })).toBe(name)
})
