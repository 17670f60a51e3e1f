import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { brief } from '../v8.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const execute = promisify(execFile)

/** Runs an example by the command in its first lines, and returns its output; `signal` ends it. */
export async function runExample(name: string, signal: AbortSignal): Promise<string> {
  const told = /\n \* {5}npm run setup && npx (\S+) (\S+)\n/.exec(readFileSync(join(root, 'examples', name), 'utf8'))
  if (told?.[2] !== `examples/${name}`) throw new Error(`examples/${name} does not say how it is run`)
  const { DATABASE_URL: _url, ...env } = process.env
  // The program that npx runs, without npx in between, so that a signal ends the example.
  const file = join(root, 'node_modules/.bin', told[1] as string)
  // With the option of vitest.config.ts.
  return (await execute(process.execPath, [...brief, file, told[2]], { cwd: root, env, signal })).stdout
}

/** The one line with this beginning. */
export function line(text: string, start: string): string {
  const found = text.split('\n').filter((one) => one.startsWith(start))
  if (found.length !== 1) throw new Error(`${found.length} lines begin with "${start}":\n${text}`)
  return found[0] as string
}

/** The numbers in a text. */
export function numbers(text: string): number[] {
  return [...text.matchAll(/\d+/g)].map(Number)
}
