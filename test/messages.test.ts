/**
 * Every text that the library shows to people, in one file: a reviewer reads them there, and sees each change of one. After
 * a change: `npx vitest run test/messages.test.ts -u`, and read the difference.
 */
import { expect, it } from 'vitest'
import { obscure } from './language.ts'
import { inSource, isSql, readAll } from './repository.ts'
import { messages } from './syntax.ts'

const files = readAll()
const sources = [...inSource(files), ...files.filter(isSql)].toSorted((a, b) => (a.path < b.path ? -1 : 1))
const sections = sources.map((file) => ({ path: file.path, found: messages(file) }))

it('the list of messages is complete and up to date', async () => {
  const text = sections
    .filter(({ found }) => found.length > 0)
    .map(({ path, found }) => `${path}\n\n${found.map((one) => `  ${one}\n`).join('')}`)
    .join('\n')
  await expect(text).toMatchFileSnapshot('messages.txt')
})

it('messages are in plain English, and without words of the architecture', () => {
  const plain = (text: string) => {
    for (let inner = ''; inner !== text;) [inner, text] = [text, text.replaceAll(/\{[^{}]*\}/g, '…')]
    return text
  }
  const all = sections.map(({ path, found }) => ({ path: `${path}.md`, text: found.map(plain).join('\n') }))
  expect(all.flatMap(obscure)).toEqual([])
  const internal = /(?<!sluice\.)\b(lanes?|in doubt|absorb\w*|fence)\b/i
  expect(all.flatMap(({ text }) => text.split('\n').filter((one) => internal.test(one)))).toEqual([])
})

it('the collector finds sentences, what is logged, and both sides of a decision, and leaves out SQL and names', () => {
  const text = [
    "const kind = 'rate'",
    "log.info('stopped')",
    "throw new UsageError('SLUICE_X', `limit \"${name}\": ${isOld ? 'it is gone' : `it is ${why}`}; ` + 'define it')",
    "await sql.query('select id from sluice.job where task = $1')",
  ].join('\n')
  expect(messages({ path: 'src/a.ts', text })).toEqual([
    'stopped',
    'limit "{name}": {it is gone|it is {why}}; define it',
  ])
  const sql = "perform engine.raise_error('SLUICE_Y',\n    format('no task %s', p_name));"
  expect(messages({ path: 'src/a.sql', text: sql })).toEqual(["SLUICE_Y: format('no task %s', p_name)"])
})
