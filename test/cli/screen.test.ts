import { expect, it } from 'vitest'
import { Screen } from '../../src/cli/screen.ts'

/** A stream that keeps what it shows: text, and what is erased from its end. */
function stage(isTTY: boolean) {
  let shown = ''
  const write = (text: string) => {
    const [, up = '0', rest = text] = /^\u001B\[(\d+)A\u001B\[J([^]*)$/.exec(text) ?? []
    const lines = shown.split('\n')
    shown = [...lines.slice(0, lines.length - 1 - Number(up)), rest].join('\n')
    return true
  }
  return { screen: new Screen({ isTTY, columns: 12, write }), shown: () => shown }
}

it('a screen keeps one block below the text that scrolls, cut to the width', () => {
  const { screen, shown } = stage(true)
  screen.write('a\n')
  screen.show(['1 running', '██░░ crm for a1'], (line) => `<${line}>`)
  expect(shown()).toBe('a\n<1 running>\n<██░░ crm f…>\n')
  screen.write('b\n')
  screen.write('c\n')
  expect(shown()).toBe('a\nb\nc\n<1 running>\n<██░░ crm f…>\n')
  screen.show(['0 running'])
  expect(shown()).toBe('a\nb\nc\n0 running\n')
  screen.show([])
  screen.write('d\n')
  expect(shown()).toBe('a\nb\nc\nd\n')
})

it('a screen shows no block where there is no terminal', () => {
  const { screen, shown } = stage(false)
  screen.show(['1 running'])
  screen.write('a\n')
  expect(shown()).toBe('a\n')
})
