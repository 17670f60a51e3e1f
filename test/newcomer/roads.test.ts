/** The first steps of three kinds of projects, each with the built package and nothing else. */
import { execFile } from 'node:child_process'
import { cpSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { freshDatabase } from '../servers/database.ts'
import { createNewcomer, type Newcomer } from './newcomer.ts'
import { brief } from '../v8.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const execute = promisify(execFile)
const node = (project: Newcomer, args: string[], env: NodeJS.ProcessEnv = {}) =>
  // As in vitest.config.ts.
  execute(process.execPath, [...brief, ...args], { cwd: project.dir, env: { ...project.env, ...env } })
const sluice = (project: Newcomer, args: string[], env: NodeJS.ProcessEnv = {}) =>
  node(project, [join(root, 'dist/cli/main.js'), ...args], env)
const tsc = (project: Newcomer, args: string[]) =>
  execute(join(root, 'node_modules/.bin/tsc'), args, { cwd: project.dir, env: project.env }).catch((error: unknown) => {
    throw new Error((error as { stdout: string }).stdout)
  })
const names = (out: string) =>
  out
    .trim()
    .split('\n')
    .map((file) => file.split('/').at(-1))
const input = '{"accountId":"a1","contactId":"7"}'

it.each([
  { kind: 'a new one', packageFile: undefined, end: 'ts' },
  { kind: 'CommonJS', packageFile: '{"type":"commonjs","devDependencies":{"typescript":"*"}}', end: 'mts' },
])('TypeScript ($kind): what init writes compiles with the defaults of tsc --init', async ({ packageFile, end }) => {
  const project = createNewcomer(['zod'])
  if (packageFile !== undefined) project.write('package.json', packageFile)
  const { stdout, stderr } = await sluice(project, ['init'])
  expect(names(stdout)).toEqual(expect.arrayContaining([`sluice.config.${end}`, `tasks.${end}`, '.gitignore']))
  expect(stderr).not.toContain('npm pkg')
  await tsc(project, ['--init'])
  await tsc(project, ['--noEmit'])
})

it('TypeScript: declarations compile by themselves where no optional package is installed', async () => {
  const project = createNewcomer(['zod', '@types/node', 'undici-types'])
  // Through the link the package would find the packages of this repository.
  const own = join(project.dir, 'node_modules/sluice')
  rmSync(own)
  for (const name of ['package.json', 'dist']) cpSync(join(root, name), join(own, name), { recursive: true })
  const spec = 'node_modules/@standard-schema'
  cpSync(join(root, spec), join(project.dir, spec), { recursive: true })
  project.write(
    'use.ts',
    `export * from 'sluice'; export * as kit from 'sluice/testing'; export * as py from 'sluice/celery'`,
  )
  const how = ['--strict', '--noEmit', '--module', 'nodenext', '--types', 'node', '--skipLibCheck', 'false']
  expect(await tsc(project, ['use.ts', ...how])).toMatchObject({ stdout: '' })
})

it('TypeScript: errors of the compiler name the form that is wanted', async () => {
  const project = createNewcomer(['@types/node', 'undici-types'])
  project.write(
    'wrong.ts',
    `import { limit, task } from 'sluice'
limit('a', { rate: '100 per minute' })
limit('b', { quota: '1000 per day' })
task('c', { thread: new URL('./work.js', import.meta.url), run: () => 1 })`,
  )
  const compiled = tsc(project, ['wrong.ts', '--strict', '--noEmit', '--module', 'nodenext', '--types', 'node'])
  const { message } = await compiled.then(
    () => new Error('it compiled'),
    (error: Error) => error,
  )
  expect(message).toContain(`Type '"100 per minute"' is not assignable to type 'readonly Amount<"100/min">[]`)
  expect(message).toContain(`Type '"1000 per day"' is not assignable to type 'readonly Quota<"1000/day">[]`)
  expect(message).toContain(`Types of property 'run' are incompatible`)
})

it('TypeScript finds the same declarations by the fields that its older resolution reads', () => {
  const own = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
    main: string
    types: string
    typesVersions: { '*': Record<string, string[]> }
    exports: Record<string, { types: string; default: string }>
  }
  const { '.': whole, ...parts } = own.exports
  expect({ types: own.types, default: own.main }).toEqual(whole)
  const older = Object.entries(own.typesVersions['*']).map(([name, files]) => [`./${name}`, files])
  expect(Object.fromEntries(older)).toEqual(
    Object.fromEntries(Object.entries(parts).map(([name, { types }]) => [name, [types]])),
  )
})

it('CommonJS: what init writes runs, and `require` works', async () => {
  const project = createNewcomer([])
  const env = { DATABASE_URL: (await freshDatabase()).url }
  project.write('package.json', '{"name":"old","main":"index.js"}')
  const { stdout, stderr } = await sluice(project, ['init'])
  expect(names(stdout)).toEqual(['sluice.config.js', 'tasks.js', '.gitignore'])
  expect(stderr).not.toMatch(/zod|npm pkg/)
  await sluice(project, ['send', 'sync-contact', input], env)
  expect((await sluice(project, ['dispatch', '--once'], env)).stdout).toBe('1\n')
  expect((await sluice(project, ['jobs', '--state', 'done'], env)).stdout).toContain('sync-contact')
  project.write(
    'kit.js',
    `console.log(typeof require('sluice/testing').testSluice, typeof require('./tasks.js').syncContact.send)`,
  )
  expect((await node(project, ['kit.js'])).stdout).toBe('function function\n')
})

it('an existing app: init changes none of its files, and a script that only sends says where, and ends', async () => {
  const project = createNewcomer([])
  const own = { 'package.json': '{"name":"app","version":"1.0.0"}', 'index.js': `require('node:http').createServer()` }
  for (const [name, text] of Object.entries(own)) project.write(name, text)
  project.write('.gitignore', 'node_modules\n.env')
  await sluice(project, ['init'])
  for (const [name, text] of Object.entries(own)) expect(readFileSync(join(project.dir, name), 'utf8')).toBe(text)
  expect(readFileSync(join(project.dir, '.gitignore'), 'utf8')).toBe('node_modules\n.env\n.sluice/\n')
  project.write('only.js', `require('./tasks.js').syncContact.send(${input}).then((id) => console.log(id.length))`)
  const { stdout, stderr } = await node(project, ['only.js'])
  expect(stdout).toBe('36\n')
  expect(stderr.match(/DATABASE_URL is not set, so jobs are kept in .*\.sluice\/data/g)).toHaveLength(1)
  await expect(sluice(project, ['init'])).rejects.toMatchObject({ code: 2 })
})

it('a production without a store is warned in one line by a program and by a command', async () => {
  const project = createNewcomer([])
  project.write('package.json', '{"name":"app","version":"1.0.0"}')
  await sluice(project, ['init'])
  project.write('only.js', `require('./tasks.js').syncContact.send(${input})`)
  const env = { ...project.env, NODE_ENV: 'production' }
  const warning = /^sluice: warning: DATABASE_URL is not set in production.*set DATABASE_URL to .*$/gm
  for (const run of [() => node(project, ['only.js'], env), () => sluice(project, ['dispatch', '--once'], env)]) {
    const { stderr } = await run()
    expect(stderr.match(warning)).toHaveLength(1)
    expect(stderr).not.toMatch(/^sluice: DATABASE_URL/m)
  }
  const meant = await sluice(project, ['dispatch', '--once'], { ...env, DATABASE_URL: `${project.dir}/.sluice/data` })
  expect(meant.stderr).not.toContain('warning')
})
