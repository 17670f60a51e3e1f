/** Processes of a test, each of which prints a line once it is ready. Those that are left end with the test. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { afterEachTest } from '../ends.ts'
import type { Arrival } from '../../src/testing/proof.ts'
import type { Report } from '../../src/testing/vendor.ts'

const serveFile = fileURLToPath(new URL('../../dist/testing/serve.js', import.meta.url))
const children = new Set<ChildProcess>()

afterEachTest(async () => {
  const ends = [...children].map((child) => once(child, 'exit'))
  for (const child of children) child.kill('SIGKILL')
  await Promise.all(ends)
})

/** Starts one; `line` is the first that it prints. Rejects when it ends before. */
export async function start(file: string, options: object): Promise<{ child: ChildProcess; line: string }> {
  const child = spawn(process.execPath, [file, JSON.stringify(options)], { stdio: ['pipe', 'pipe', 'inherit'] })
  children.add(child)
  const ended = once(child, 'exit').then(() => {
    children.delete(child)
    throw new Error(`${file} ended before it said a word`)
  })
  const [line] = await Promise.race([once(createInterface(child.stdout), 'line'), ended])
  return { child, line: String(line) }
}

/** Ends these in order, and waits until they have. */
export async function end(fleet: readonly ChildProcess[]): Promise<void> {
  const ends = fleet.map((child) => once(child, 'exit'))
  for (const child of fleet) child.kill('SIGTERM')
  await Promise.all(ends)
}

/** A vendor in a process of its own, and the calls that it received. */
export async function vendorOf(rules: readonly object[]) {
  const { line: url } = await start(serveFile, { rules, latencyMs: 5 })
  const ask = async <T>(what: string) => (await (await fetch(`${url}/.vendor/${what}`)).json()) as T
  return { url, report: () => ask<Report>('report'), arrivals: () => ask<Arrival[]>('arrivals') }
}
