import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

const root = fileURLToPath(new URL('../..', import.meta.url))
const execute = promisify(execFile)

/** Runs an example as its first lines say, and gives back what it printed. */
export async function runExample(name: string): Promise<string> {
  const { DATABASE_URL: _url, ...env } = process.env
  const { stdout } = await execute('npx', ['jiti', `examples/${name}`], { cwd: root, env })
  return stdout
}

/** The one line that begins so. */
export function line(text: string, start: string): string {
  const found = text.split('\n').filter((one) => one.startsWith(start))
  if (found.length !== 1) throw new Error(`${found.length} lines begin with "${start}":\n${text}`)
  return found[0] as string
}

/** The numbers in a text. */
export function numbers(text: string): number[] {
  return [...text.matchAll(/\d+/g)].map(Number)
}
