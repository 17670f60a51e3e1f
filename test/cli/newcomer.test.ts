import { execFile } from 'node:child_process'
import { mkdtempSync, readFileSync, realpathSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { until } from '../until.ts'
import { createProject, objects } from './program.ts'
import { brief } from '../v8.ts'

// The steps of a newcomer by the README: the packed package replaces the checkout, and no registry is used.
const root = fileURLToPath(new URL('../..', import.meta.url))
const readme = readFileSync(join(root, 'README.md'), 'utf8')
// Not the synchronous call: a test that is silent for a minute ends the run.
const execute = promisify(execFile)

it('README leads to a limited task that runs, and to a program that sends to it', async ({ onTestFinished }) => {
  const dir = realpathSync(mkdtempSync(join(tmpdir(), 'sluice-newcomer-')))
  const checkout = join(dir, 'package')
  const project = createProject({ SLUICE_ALLOW_PRIVATE: '' }, join(checkout, 'dist/cli/main.js'))
  onTestFinished(async () => {
    await project.close()
    rmSync(dir, { recursive: true, force: true })
  })
  const packed = (await npm(root, 'pack', '--ignore-scripts', '--pack-destination', dir)).trim()
  await execute('tar', ['-xzf', join(dir, packed), '-C', dir])
  symlinkSync(join(root, 'node_modules'), join(checkout, 'node_modules'))

  expect(readme).toContain('node /path/to/sluice/dist/cli/main.js init ')
  const init = await project.run(['init'])
  expect(init.err).toContain(`npm install ${checkout} zod\n`)
  expect(readFileSync(join(project.dir, 'tasks.ts'), 'utf8')).toContain(
    /\/\/ Never .*\nconst crm = .*\n/.exec(readme)?.[0],
  )
  expect(readme).toContain('npm install /path/to/sluice zod ')
  await npm(project.dir, 'install', '--offline', checkout, join(root, 'node_modules/zod'))

  expect(readme).toContain('npx sluice dev ')
  const dev = project.start(['dev'])
  await dev.says('working on sync-contact')
  const [, line = ''] = /(npx sluice send .*--repeat) 500/.exec(readme) ?? []
  await execute('sh', ['-c', `${line} 2`], { cwd: project.dir })
  await until(async () => objects((await project.run(['status', '--json'])).out)[0]?.['waiting'] === 0)

  // The program is TypeScript too: it is compiled with the types that come with the package, and then run.
  project.write('app.ts', code('// app.mjs'))
  const flags = '--module nodenext --target es2023 --strict --rewriteRelativeImportExtensions --types node'.split(' ')
  const types = ['--typeRoots', join(root, 'node_modules/@types'), '--outDir', 'out', 'app.ts', 'sluice.config.ts']
  await execute(join(root, 'node_modules/.bin/tsc'), [...flags, ...types], { cwd: project.dir })
  const { stdout } = await execute(process.execPath, [...brief, 'out/app.js'], {
    cwd: project.dir,
    env: { ...process.env, SLUICE_ALLOW_PRIVATE: '' },
  })
  expect(stdout).toContain('/accounts/a1/contacts/7\n')
  expect(stdout).toContain('no limit exceeded: true')
}, 300_000)

/** The README's code block from the line that begins so. */
function code(start: string): string {
  const at = readme.indexOf(`\n${start}`) + 1
  return readme.slice(at, readme.indexOf('```', at))
}

async function npm(cwd: string, ...args: string[]): Promise<string> {
  return (await execute('npm', [...args, '--no-audit', '--no-fund', '--loglevel=error'], { cwd })).stdout
}
