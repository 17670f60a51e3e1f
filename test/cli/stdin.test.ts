/** What a command prints when it waits for input at a terminal. */
import { expect, it } from 'vitest'
import { standardInput } from '../../src/cli/stdin.ts'

it('a command prints that it reads at a terminal, and how that ends, and for a file or a pipe nothing', () => {
  const told: string[] = []
  const out = { talk: (text: string) => void told.push(text) }
  const piped = {}
  expect(standardInput(out, 'rows', piped)).toBe(piped)
  expect(told).toEqual([])
  standardInput(out, 'rows', { isTTY: true })
  expect(told).toEqual([expect.stringMatching(/reading rows from this terminal.*Ctrl-D/)])
})
