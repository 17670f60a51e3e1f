import { spawnSync } from 'node:child_process'
import { accessSync, constants, existsSync, openSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createProject, objects, type Project, type Ran, tasksFile } from './program.ts'

// Nothing here needs a store: 127.0.0.1:1 refuses connections, so a command that reaches the store ends with 3.
const unreachable = 'postgres://127.0.0.1:1/none'
let project: Project

beforeAll(() => {
  project = createProject({ DATABASE_URL: unreachable })
  project.write('tasks.ts', tasksFile)
  project.write('sluice.config.ts', `export default { tasks: './tasks.ts' }`)
})
afterAll(() => project.close())

it.runIf(existsSync('/dev/full'))('a failed write ends with exit code 1 and one line', async () => {
  const main = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url))
  const { status, stderr } = spawnSync(process.execPath, [main, '--help'], {
    stdio: ['ignore', openSync('/dev/full', 'w'), 'pipe'],
    encoding: 'utf8',
  })
  expect(stderr).toMatch(/^error SLUICE_OUTPUT_FAILED: .*ENOSPC.*\n$/)
  expect(status).toBe(1)
})

it('the built command line can be executed, as a project does that links to a checkout', () => {
  const main = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url))
  expect(() => accessSync(main, constants.X_OK)).not.toThrow()
})

it('an import that ends with an error shows the cursor of the terminal again', () => {
  project.write('twice.csv', 'accountId,accountId\na,b\n')
  const main = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url))
  const inTerminal = 'import pty, sys; pty.spawn(sys.argv[1:])'
  const command = [process.execPath, main, 'send', 'sync-contact', '--from', 'twice.csv']
  const { stdout } = spawnSync('python3', ['-c', inTerminal, ...command], { cwd: project.dir, encoding: 'utf8' })
  expect(stdout).toContain('names column "accountId" twice')
  expect(stdout).toMatch(/\u001b\[\?25l[^]*\u001b\[\?25h/)
})

describe('a usage error ends with exit code 2 and one line', () => {
  const errors = [
    ['an unknown command', ['frobnicate'], 'SLUICE_USAGE', 'frobnicate'],
    ['an unknown option', ['jobs', '--frob'], 'SLUICE_USAGE', '--frob'],
    ['an unknown state', ['jobs', '--state', 'lost'], 'SLUICE_USAGE', 'lost'],
    ['an unknown state among others', ['jobs', '--state', 'waiting,lost'], 'SLUICE_USAGE', 'lost'],
    ['a limit as a command', ['limits', 'crm'], 'SLUICE_USAGE', '; `sluice limits show crm` shows that one'],
    [
      'the same key twice',
      ['limits', 'rekey', 'crm', '--key', 'a1', '--to', 'a1', '--yes'],
      'SLUICE_BAD_OPTION',
      'same key "a1"',
    ],
    [
      'numbers as an argument',
      ['limits', 'set', 'crm', '5/s', '--reason', 'x'],
      'SLUICE_USAGE',
      'options: --rate 50/min',
    ],
    ['a limit as an argument', ['pause', 'crm', '--reason', 'x'], 'SLUICE_USAGE', '--queue, --task, or --limit'],
    [
      'a reason for ids',
      ['cancel', '01a1fc6b-5572-7201-b763-4015a2471fa0', '--reason', 'x'],
      'SLUICE_BAD_OPTION',
      'leave it out with ids',
    ],
    ['a number out of range', ['send', 'plain', '{"n":1}', '--repeat', '0'], 'SLUICE_USAGE', '1 to 100000'],
    ['a missing argument', ['jobs', 'show'], 'SLUICE_USAGE', 'id'],
    ['neither an id nor a task', ['why'], 'SLUICE_BAD_OPTION', '--task'],
    ['an id and a task', ['why', '01a1fc6b', '--task', 'plain'], 'SLUICE_BAD_OPTION', 'not both'],
    ['an input that does not fit', ['send', 'plain', '{"n":"1"}'], 'SLUICE_INVALID_INPUT', 'n: '],
    ['bad JSON', ['send', 'plain', '{n:1}'], 'SLUICE_BAD_JSON', 'not JSON'],
    ['a missing key', ['send', 'sync-contact', '{}'], 'SLUICE_MISSING_KEY', 'accountId'],
    ['U+0000', ['send', 'sync-contact', '{"accountId":"a","note":"\\u0000"}'], 'SLUICE_BAD_PAYLOAD', 'note'],
    ['a bad rate', ['work', '--rate', 'often'], 'SLUICE_BAD_RATE', 'often'],
    ['a bad span', ['send', 'plain', '{"n":1}', '--delay', 'soon'], 'SLUICE_BAD_DURATION', 'soon'],
    ['a time too far away', ['send', 'plain', '{"n":1}', '--at', '2100-01-01'], 'SLUICE_BAD_OPTION', '366 days'],
    ['a bad wait', ['send', 'plain', '{"n":1}', '--max-wait', '400d'], 'SLUICE_BAD_OPTION', 'maxWait'],
    ['nothing to replace', ['send', 'plain', '{"n":1}', '--replace'], 'SLUICE_BAD_OPTION', '--idempotency-key'],
    ['a bad time', ['send', 'plain', '{"n":1}', '--at', '5'], 'SLUICE_BAD_OPTION', '--at'],
    [
      'a bad time to begin',
      ['jobs', '--since', 'tomorrow'],
      'SLUICE_BAD_DURATION',
      'how long ago, such as 2h or 7d, or a',
    ],
    ['a pattern of events', ['events', 'replay', '--event', 'a.#'], 'SLUICE_BAD_OPTION', 'a pattern; give one type'],
    ['a handler as a flag', ['events', 'replay', '--handler', 'a'], 'SLUICE_USAGE', 'here: --input handler=<name>'],
    ['an unknown reason', ['retry', '--reason', 'exausted'], 'SLUICE_BAD_OPTION', 'fail as exhausted, refused'],
    ['a bad store', ['status', '--store', 'mysql://h/d'], 'SLUICE_BAD_URL', 'mysql:'],
    ['a bad port', ['status', '--store', 'postgres://h:port/d'], 'SLUICE_BAD_URL', 'postgres://user'],
    ['a directory without a store', ['status', '--store', './none'], 'SLUICE_NO_STORE', 'sluice --store ./none dev'],
    ['one whose name has a space', ['status', '--store', './no one'], 'SLUICE_NO_STORE', "--store './no one' dev"],
    ['a bad schema', ['status', '--schema', 'a-b'], 'SLUICE_BAD_SCHEMA', 'a-b'],
    ['a config that is not there', ['status', '--config', 'none.ts'], 'SLUICE_BAD_CONFIG', 'none.ts'],
    ['two files of tasks', ['work', 'a.ts', '--tasks', 'b.ts'], 'SLUICE_BAD_OPTION', 'once: a.ts, or --tasks b.ts'],
    ['two files of tasks for dev', ['dev', 'a.ts', '--tasks', 'b.ts'], 'SLUICE_BAD_OPTION', '--tasks b.ts'],
    ['a tasks file without tasks', ['work', 'sluice.config.ts'], 'SLUICE_NO_TASKS', 'exports no task'],
    ['a maximum without --once', ['dispatch', '--max', '3'], 'SLUICE_BAD_OPTION', '--once'],
    [
      'a dry run with ids',
      ['retry', '01a1fc6b-5572-7201-b763-4015a2471fa0', '--dry-run'],
      'SLUICE_BAD_OPTION',
      '--dry-run counts what options select',
    ],
    ['one bad id among others', ['cancel', '01a1fc6b-5572-7201-b763-4015a2471fa0', 'x'], 'SLUICE_BAD_ID', '"x"'],
  ] as const
  let ran: Ran[]
  beforeAll(async () => {
    // With --dry-run, because `send` opens the store before it looks at the input.
    ran = await Promise.all(
      errors
        .map(([, args]) => (args[0] === 'send' ? [...args, '--dry-run'] : [...args]))
        .map((args) => project.runWarm(args)),
    )
  })

  it.each(errors.map(([what, , code, word], n) => [what, n, code, word] as const))('%s', (_, n, code, word) => {
    expect(ran[n]).toMatchObject({ code: 2, out: '' })
    expect(ran[n]?.err).toMatch(new RegExp(`^error ${code}: [^\n]*\n$`))
    expect(ran[n]?.err).toContain(word)
  })

  const configs = [
    ['an unknown field', `export default { concurency: 5 }`, 'has no "concurency"; did you mean "concurrency"? there'],
    ['no default export', `export const store = 'x'`, 'export default'],
    [
      'a promise as its default export',
      `export default Promise.resolve({ store: 'x' })`,
      'its default export is a promise; write `export default await …`',
    ],
    ['listeners that are no object', `export default { on: null }`, 'on needs an object with its options; there are'],
    ['a wrong type', `export default { concurrency: 0 }`, 'concurrency'],
    [
      'too many connections',
      `export default { connections: 5000 }`,
      'connections must be a whole number from 1 to 1,000',
    ],
    ['something that is no task', `export default { tasks: [{ name: 'x' }] }`, 'tasks'],
    ['no list of addresses', `export default { allowPrivate: '127.0.0.1' }`, 'allowPrivate must be a list'],
    ['an invalid address', `export default { allowPrivate: ['http://x'] }`, 'allowPrivate: "http://x"'],
    ['a syntax error', `export default {`, 'cannot be loaded'],
  ] as const
  let judged: Ran[]
  beforeAll(async () => {
    for (const [n, [, text]] of configs.entries()) project.write(`bad${n}.config.ts`, text)
    judged = await Promise.all(
      configs.map((_, n) => project.runWarm(['status', '--config', `bad${n}.config.ts`, '--json'])),
    )
  })

  it.each(configs.map(([what, , word], n) => [what, n, word] as const))('a config with %s', (_, n, word) => {
    expect(judged[n]).toMatchObject({ code: 2, out: '' })
    const [said] = objects(judged[n]?.err ?? '') as [{ error: { code: string; message: string } }]
    expect(said.error.code).toBe('SLUICE_BAD_CONFIG')
    expect(said.error.message).toContain(word)
  })

  it('an invalid environment, unless a flag or the config file overrides it', async () => {
    const env = { SLUICE_CONCURRENCY: 'many' }
    expect(await project.run(['work'], { env })).toMatchObject({ code: 2, err: expect.stringContaining('"many"') })
    expect(await project.run(['work', '-c', '2'], { env })).toMatchObject({ code: 3 })
  })
})

it('a config that is never loaded is named after some seconds', async () => {
  project.write('never.config.ts', `await new Promise(() => {})\nexport default {}`)
  const status = project.start(['status', '--config', 'never.config.ts'])
  await status.ended
  expect(status.err()).toMatch(/^still loading \S+never\.config\.ts: /)
})

it('an unreachable store ends with exit code 3, as JSON too, never with a stack', async () => {
  const plain = await project.run(['status'])
  expect(plain).toMatchObject({ code: 3, out: '' })
  expect(plain.err).toMatch(/^error SLUICE_STORE_UNREACHABLE: [^\n]*127\.0\.0\.1:1[^\n]*\n$/)
  const json = await project.run(['doctor', '--json'])
  expect(json.code).toBe(3)
  expect(objects(json.err)).toEqual([{ error: { code: 'SLUICE_STORE_UNREACHABLE', message: expect.any(String) } }])
  expect((await project.run(['status'], { env: { SLUICE_LOG_LEVEL: 'debug' } })).err).toContain('\n    at ')
})

it('--help and --version are data and end with 0, and a call without command is a usage error', async () => {
  expect(await project.run(['--version'])).toMatchObject({ code: 0, out: expect.stringMatching(/^\d+\.\d+\.\d+\n$/) })
  expect(await project.run(['work', '--help'])).toMatchObject({
    code: 0,
    out: expect.stringContaining('--concurrency'),
  })
  expect(await project.run([])).toMatchObject({ code: 2, out: '' })
})

it('the task http is there without being defined', async () => {
  const env = { SLUICE_TASKS: 'tasks.ts' }
  const http = (input: string) => project.run(['send', 'http', input, '--dry-run', '--config', 'empty.ts'], { env })
  project.write('empty.ts', 'export default {}')
  expect(await http('{"url":"https://example.com","json":{}}')).toMatchObject({ code: 0 })
  expect(await http('{"uri":"x"}')).toMatchObject({ code: 2, err: expect.stringContaining('url is missing') })
  const args = ['send', 'plain', '{"n":1}', '--dry-run', '--config', 'empty.ts']
  expect(await project.run(args, { env })).toMatchObject({ code: 0 })
  expect(await project.run(args)).toMatchObject({ code: 1, err: expect.stringContaining('is known here: its schema') })
  expect(await project.run(['work', '--config', 'empty.ts'])).toMatchObject({
    code: 2,
    err: expect.stringContaining('SLUICE_NO_TASKS'),
  })
})

it('tasks may be exported in a list, which a program gives to `sluice.work`', async () => {
  project.write(
    'lists.mjs',
    `import { task } from 'sluice'
export const alone = task('alone', { run: () => {} })
export const all = [alone, task('listed', { run: () => {} })]`,
  )
  const args = ['send', 'listed', '{}', '--dry-run', '--tasks', 'lists.mjs']
  expect(await project.run(args)).toMatchObject({ code: 0 })
})

it('a schema may be a function, as those of ArkType are', async () => {
  project.write(
    'ark.ts',
    `import { task } from 'sluice'
const input = Object.assign(() => {}, { '~standard': { version: 1, vendor: 'x', validate: (value) => ({ value }) } })
export const ark = task('ark', { input, run() {} })`,
  )
  expect(await project.run(['send', 'ark', '--dry-run', '--tasks', 'ark.ts'])).toMatchObject({ code: 0, err: '' })
})

it('send --dry-run checks the input, from stdin too, without a store', async () => {
  const ran = await project.run(['send', 'sync-contact', '-', '--dry-run', '--json'], { input: '{"accountId":"a1"}' })
  expect(ran).toMatchObject({ code: 0, err: '' })
  const would = {
    state: 'waiting',
    reason: null,
    task: 'sync-contact',
    queue: 'default',
    priority: 0,
    weight: 1,
    limits: ['crm:a1'],
    costs: [1],
    tags: [],
    dueAt: null,
    expiresAt: null,
    ruled: [],
    input: { accountId: 'a1' },
  }
  expect(objects(ran.out)).toEqual([would])
  const options = ['--delay', '1h', '--max-wait', '2h', '--idempotency-key', 'k', '--replace', '--tag', 't']
  const args = ['send', 'sync-contact', '{"accountId":"a1"}', '--dry-run', '--priority', '3', ...options]
  const [json, text] = await Promise.all([project.run([...args, '--json']), project.run(args)])
  const [later] = objects(json.out) as [{ dueAt: string; expiresAt: string }]
  const { dueAt, expiresAt } = later
  const given = { idempotencyKey: 'k', replace: true, tags: ['t'], priority: 3 }
  expect(later).toEqual({ ...would, ...given, state: 'scheduled', reason: 'delay', dueAt, expiresAt })
  expect(Date.parse(expiresAt) - Date.parse(dueAt)).toBe(7_200_000)
  expect(text.out).toMatch(/^would send sync-contact to queue default, limited by crm:a1, not before \S+Z\n$/)
})
