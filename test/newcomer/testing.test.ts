/** The examples of docs/testing.md, each run by its own runner against the built package. */
import { execFile } from 'node:child_process'
import { readFileSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { isLong } from '../long.ts'
import { createNewcomer } from './newcomer.ts'
import { brief } from '../v8.ts'

const execute = promisify(execFile)
const root = fileURLToPath(new URL('../..', import.meta.url))
const page = readFileSync(join(root, 'docs/testing.md'), 'utf8')

it.each([
  {
    runner: 'vitest',
    args: ['--run', '--hookTimeout=100000', '--testTimeout=100000', 'contacts.test.js'],
    bin: join(root, 'node_modules/vitest/vitest.mjs'),
  },
  { runner: 'node:test', args: [...brief, '--test', 'contacts.node.js'], bin: undefined },
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

// Jest is no dependency: it would double the packages that a checkout installs, and only this needs it.
it.runIf(isLong)(
  'the example for Jest passes, as the page says it is run',
  async ({ skip }) => {
    const [, first = '', options = '', args = ''] =
      /^\*\*Jest\*\* .*`(import [^`]*)`.*`NODE_OPTIONS=(\S+) npx jest ([^`]*)`/m.exec(page) ?? []
    const tools = createNewcomer([])
    const own = ['--prefix', tools.dir, '--no-save', '--no-audit', '--no-fund']
    const installed = await execute('npm', ['install', ...own, 'jest@30.5.2'], { cwd: tools.dir, env: tools.env }).then(
      () => true,
      () => false,
    )
    if (!installed) skip('Jest could not be installed: npm reaches no registry')
    const project = createNewcomer(['zod'])
    symlinkSync(join(tools.dir, 'node_modules/@jest'), join(project.dir, 'node_modules/@jest'))
    project.write('package.json', '{"type":"module"}')
    for (const [, name = '', text = ''] of page.matchAll(/```js\n\/\/ (\S+)\n([^]*?)```/g))
      project.write(name, text.replace(/^import .* from 'vitest'/m, first))
    const env = { ...project.env, NODE_OPTIONS: options }
    const command = ['--liftoff-only', join(tools.dir, 'node_modules/jest/bin/jest.js'), ...args.split(' ')]
    const { stderr } = await execute(process.execPath, command, { cwd: project.dir, env })
    expect(stderr).toMatch(/^Tests: +1 passed, 1 total$/m)
  },
  600_000,
)
