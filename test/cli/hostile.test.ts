/** Texts of vendors and customers that a terminal would obey: titles, cleared screens, colours, another direction. */
import { afterAll, beforeAll, expect, it } from 'vitest'
import { output } from '../../src/cli/output.ts'
import { Screen } from '../../src/cli/screen.ts'
import { writtenLog } from '../../src/report/format.ts'
import { limit, Sluice, task } from '../../src/index.ts'
import { freshDatabase } from '../servers/database.ts'
import { createProject, type Project } from './program.ts'

const hostile = '\u001B]0;owned\u0007\u001B[2J\u001B[8m\u202Egnp.exe\u009B31m\r\u007F'
// oxlint-disable-next-line no-control-regex -- these are what it looks for
const obeyed = /[\u0000-\u0008\u000B-\u001F\u007F-\u009F\u202A-\u202E\u2066-\u2069]/
const crm = limit('crm', { rate: '100/min', by: 'account' })
const sync = task('sync', {
  limits: [crm],
  retry: { attempts: 1 },
  run({ text }: { account: string; text: string }) {
    throw new Error(`the vendor answered ${text}`)
  },
})

let project: Project
let id: string
beforeAll(async () => {
  const { url } = await freshDatabase()
  project = createProject({ DATABASE_URL: url })
  const sluice = await Sluice.open({ store: url, logLevel: 'silent' })
  id = await sluice.send(sync, { account: `a${hostile}`, text: hostile }, { tags: ['\u202Etag'] })
  await sluice.dispatchOnce([sync])
  await sluice.close()
})
afterAll(() => project.close())

it.each([
  ['jobs', '--state', 'failed'],
  ['jobs', 'show', '$id'],
  ['jobs', 'show', '$id', '--json'],
  ['limits', 'usage', 'crm'],
  ['jobs', 'show', hostile],
])('sluice %s %s prints what a terminal would obey as codes', async (...args) => {
  const { out, err } = await project.runWarm(args.map((one) => (one === '$id' ? id : one)))
  expect(out + err).toContain('\\u001b]0;owned')
  expect(out + err).not.toMatch(obeyed)
})

it('the log, and the block of a terminal, show such texts as codes, too', () => {
  let text = ''
  const write = (more: string) => (text += more) !== ''
  const log = writtenLog({ level: 'info', format: 'text', isTerminal: false }, write, () => 0)
  log.warn(`attempt failed: ${hostile}`, { key: hostile, plain: '\u001Bc', err: new Error(hostile) })
  expect(text).not.toMatch(obeyed)
  expect(text).toContain('attempt failed: \\u001b]0;owned')
  // A text of others makes no line of its own.
  const forged = 'answered 500\n1970-01-01T00:00:00.000Z info  all is well'
  log.warn(forged, { err: new Error(forged) })
  expect(text.match(/^1970-01-01T00:00:00.000Z \w+/gm)).toEqual(Array(2).fill('1970-01-01T00:00:00.000Z warn'))
  text = ''
  new Screen({ isTTY: true, columns: 200, write }).show([hostile])
  expect(text).not.toMatch(obeyed)
})

it('what the command line itself paints stays', () => {
  const { isTTY } = process.stdout
  const { write } = process.stdout
  const { NO_COLOR: none } = process.env
  let text = ''
  try {
    Reflect.deleteProperty(process.env, 'NO_COLOR')
    process.stdout.isTTY = true
    process.stdout.write = ((more: string) => (text += more) !== '') as typeof write
    const out = output({ color: true })
    out.line(`${out.paint('green', 'ok')} ${hostile}`)
  } finally {
    Object.assign(process.stdout, { isTTY, write })
    if (none !== undefined) process.env['NO_COLOR'] = none
  }
  expect(text).toContain('\u001B[32mok\u001B[39m \\u001b]0;owned')
})
