import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import { failureReasons, scheduledReasons } from '../../src/core/reasons.ts'

/** The first words in backquotes of the rows of the table under a heading, in one column. */
function wordsOf(page: string, heading: string, column: number): string[] {
  const text = readFileSync(new URL(`../../docs/${page}`, import.meta.url), 'utf8')
  const table = text.slice(text.indexOf(heading)).split('\n\n')[0] ?? ''
  const rows = table.split('\n').slice(2)
  return rows.map((row) => /`(\w+)`/.exec(row.split('|')[column] ?? '')?.[1] ?? '')
}

it('the pages list the reasons that the types have', () => {
  expect(wordsOf('job.md', '| reason | meaning |', 1)).toEqual([...failureReasons])
  expect(wordsOf('record.md', '| why it starts no sooner |', 2)).toEqual([...scheduledReasons])
})
