import { existsSync, readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import { longest } from './order.ts'
import { readAll } from './repository.ts'

const at = (path: string) => new URL(`../${path}`, import.meta.url)

it('every file that is to run first exists', () => {
  expect(longest.filter((file) => !existsSync(at(file)))).toEqual([])
})

it('every file with a long form is run in it by a command', () => {
  const { scripts } = JSON.parse(readFileSync(at('package.json'), 'utf8')) as { scripts: Record<string, string> }
  // With -t a command runs some of a file's tests.
  const commands = Object.values(scripts).filter((one) => one.includes('--mode long') && !one.includes(' -t '))
  const named = commands.flatMap((one) => one.split(' ').filter((word) => word.startsWith('test/')))
  const long = readAll().filter(({ path, text }) => path.endsWith('.test.ts') && /^import .*\/long\.ts'$/m.test(text))
  expect(long.length).toBeGreaterThan(0)
  expect(long.map(({ path }) => path).filter((path) => !named.some((name) => path.startsWith(name)))).toEqual([])
})
