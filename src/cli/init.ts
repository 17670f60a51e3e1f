/** `sluice init`: writes a config and a first task that runs at once. */
import fs from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { Command } from 'commander'
import { UsageError } from '../core/errors.ts'
import { output } from './output.ts'
import type { Globals } from './settings.ts'
import { filesFor, type Kind, usesZod } from './template.ts'

/** `sluice init`. */
export function initCommand(): Command {
  return new Command('init')
    .description(
      'write a config and a first task here, as this project writes modules, and package.json if there is none',
    )
    .option('-y, --yes', 'overwrite existing files')
    .option('--dry-run', 'only print which files would be written')
    .action(init)
}

function init(flags: { yes?: boolean; dryRun?: boolean }, command: Command): void {
  const out = output(command.optsWithGlobals<Globals>())
  const { kind, isNew } = projectHere()
  const files = filesFor(kind, isNew)
  const taken = Object.keys(files).filter((name) => fs.existsSync(name))
  if (taken.length > 0 && flags.yes !== true) {
    throw new UsageError(
      'SLUICE_FILE_EXISTS',
      `${taken.join(' and ')} would be overwritten; use --yes, or another directory`,
    )
  }
  const ignored = ignoring(isNew)
  const made = { ...files, ...(ignored === undefined ? {} : { '.gitignore': ignored }) }
  for (const [name, text] of Object.entries(made)) {
    if (flags.dryRun !== true) fs.writeFileSync(name, text)
    const file = path.resolve(name)
    if (out.json) out.object({ file, written: flags.dryRun !== true })
    else out.line(file)
  }
  const missing = [
    ...(isInstalled('sluice') ? [] : [fileURLToPath(new URL('../..', import.meta.url)).replace(/[\\/]$/, '')]),
    ...(!usesZod(kind) || isInstalled('zod') ? [] : ['zod']),
  ]
  if (missing.length > 0) out.hint(`npm install ${missing.map(quoted).join(' ')}`)
  out.hint('`npx sluice dev`, then in another terminal:')
  out.hint(`\`npx sluice send sync-contact '{"accountId":"a1","contactId":"7"}' --repeat 500\``)
}

/** Finds out what kind of project the current directory belongs to; a new one is TypeScript with ES modules. */
function projectHere(): { kind: Kind; isNew: boolean } {
  const file = findUpward('package.json')
  if (file === undefined) return { kind: 'typescript', isNew: true }
  const { type, dependencies, devDependencies } = readPackage(file)
  const isTyped =
    ['tsconfig.json', 'sluice.config.ts', 'sluice.config.mts'].some((name) => findUpward(name) !== undefined) ||
    'typescript' in { ...dependencies, ...devDependencies }
  const isModule = type === 'module'
  if (isTyped) return { kind: isModule ? 'typescript' : 'typescript-commonjs', isNew: false }
  return { kind: isModule ? 'module' : 'commonjs', isNew: false }
}

interface Package {
  type?: string
  dependencies?: object
  devDependencies?: object
}

function readPackage(file: string): Package {
  try {
    return JSON.parse(fs.readFileSync(file, 'utf8')) as Package
  } catch (error) {
    throw new UsageError('SLUICE_BAD_CONFIG', `${file} cannot be read: ${String(error)}`, { cause: error })
  }
}

/** Returns the nearest file of this name, from the current directory upward. */
function findUpward(name: string, dir = process.cwd()): string | undefined {
  const file = path.join(dir, name)
  if (fs.existsSync(file)) return file
  return path.dirname(dir) === dir ? undefined : findUpward(name, path.dirname(dir))
}

/** Returns .gitignore with the directory of the embedded store; undefined: it is there already. */
function ignoring(isNew: boolean): string | undefined {
  const text = fs.existsSync('.gitignore') ? fs.readFileSync('.gitignore', 'utf8') : isNew ? 'node_modules/\n' : ''
  if (/^\/?\.sluice\/?\s*$/m.test(text)) return undefined
  return `${text}${text === '' || text.endsWith('\n') ? '' : '\n'}.sluice/\n`
}

/** Returns whether a file in this directory could import the package. */
function isInstalled(name: string): boolean {
  return findUpward(path.join('node_modules', name)) !== undefined
}

function quoted(word: string): string {
  return /^[\w./:\\@-]+$/.test(word) ? word : `"${word}"`
}
