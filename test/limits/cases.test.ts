import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'

const root = fileURLToPath(new URL('../..', import.meta.url))
const page = readFileSync(join(root, 'docs/guarantees.md'), 'utf8')
const section = /^## Sixteen cases$[^]*?(?=^## )/m.exec(page)?.[0] ?? ''
/** The files that the table names, each with the titles that stand behind it. */
const named = [...section.matchAll(/`(\w+\/[\w-]+)`|\*([^*]+)\*/g)].reduce<[file: string, titles: string[]][]>(
  (files, [, file, title]) => {
    if (file !== undefined) files.push([file, []])
    else files.at(-1)?.[1].push(title as string)
    return files
  },
  [],
)
/** A text with one sign for each number, and for each place of a title in which a number will stand. */
const plain = (text: string) => text.replaceAll(/\$\{\w+\}|\$\w+|%[a-z]|\d+(?:[,.]\d+)*/g, '#')

it('the table of sixteen cases names titles', () =>
  expect(named.flatMap(([, titles]) => titles).length).toBeGreaterThan(16))

it.each(named)('%s has the tests that the table of sixteen cases names', (file, titles) => {
  const text = plain(readFileSync(join(root, `test/${file}.test.ts`), 'utf8'))
  for (const part of titles.flatMap((title) => title.split(' … '))) expect(text).toContain(plain(part))
})
