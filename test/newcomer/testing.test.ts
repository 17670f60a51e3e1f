/** The examples of docs/testing.md, each run by its own runner against the built package. */
import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { createNewcomer } from './newcomer.ts'

const execute = promisify(execFile)
const root = fileURLToPath(new URL('../..', import.meta.url))
const page = readFileSync(join(root, 'docs/testing.md'), 'utf8')

it.each([
  {
    runner: 'vitest',
    args: ['--run', '--hookTimeout=100000', '--testTimeout=100000', 'contacts.test.js'],
    bin: join(root, 'node_modules/vitest/vitest.mjs'),
  },
  { runner: 'node:test', args: ['--test', 'contacts.node.js'], bin: undefined },
])(
  'the example for $runner passes',
  async ({ args, bin }) => {
    const project = createNewcomer()
    for (const [, name = '', text = ''] of page.matchAll(/```js\n\/\/ (\S+)\n([^]*?)```/g)) project.write(name, text)
    const command = bin === undefined ? args : [bin, ...args]
    const { stdout } = await execute(process.execPath, command, { cwd: project.dir, env: project.env })
    expect(stdout).toMatch(/1 passed|# pass 1/)
  },
  120_000,
)
