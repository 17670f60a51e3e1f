/** A newcomer's project: a directory in which the built package is installed, as a copy that npm packs would be. */
import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { onTestFinished } from 'vitest'

const root = fileURLToPath(new URL('../..', import.meta.url))

/** A directory of a newcomer. */
export interface Newcomer {
  readonly dir: string
  /** Without the settings of this repository's tests. */
  readonly env: NodeJS.ProcessEnv
  write(name: string, text: string): void
}

/** Makes a project for one test, with these packages of the repository beside `sluice`. */
export function createNewcomer(packages: readonly string[] = ['vitest', 'zod']): Newcomer {
  const dir = realpathSync(mkdtempSync(join(tmpdir(), 'sluice-newcomer-')))
  onTestFinished(() => rmSync(dir, { recursive: true, force: true, maxRetries: 5 }))
  const write = (name: string, text: string) => {
    mkdirSync(dirname(join(dir, name)), { recursive: true })
    writeFileSync(join(dir, name), text)
  }
  mkdirSync(join(dir, 'node_modules/@types'), { recursive: true })
  symlinkSync(root, join(dir, 'node_modules/sluice'))
  for (const name of packages) symlinkSync(join(root, 'node_modules', name), join(dir, 'node_modules', name))
  const {
    DATABASE_URL: _url,
    SLUICE_ALLOW_PRIVATE: _allow,
    NODE_OPTIONS: _options,
    npm_command: _npx,
    ...env
  } = process.env
  const own = Object.entries(env).filter(([name]) => !/^(VITEST|NODE_ENV|NODE_TEST)/.test(name))
  return { dir, env: { ...Object.fromEntries(own), NODE_ENV: 'development' }, write }
}
