import { existsSync } from 'node:fs'
import { expect, it } from 'vitest'
import { longest } from './order.ts'

it('every file that is to run first exists', () => {
  expect(longest.filter((file) => !existsSync(new URL(`../${file}`, import.meta.url)))).toEqual([])
})
