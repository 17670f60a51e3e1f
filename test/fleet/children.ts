/** Processes of a test, each of which prints a line once it is ready. Those that are left end with their test. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import type { TestContext } from 'vitest'
import type { Arrival } from '../../src/testing/proof.ts'
import type { Report } from '../../src/testing/vendor.ts'
import { later } from '../until.ts'
import { member } from '../v8.ts'

const serveFile = fileURLToPath(new URL('../../dist/testing/serve.js', import.meta.url))

/** The test that a process belongs to. Tests of one file may run at the same time. */
export type Owner = Pick<TestContext, 'onTestFinished'>

/** Starts one; `line` is the first that it prints. Rejects when it ends before. */
export async function start(
  test: Owner,
  file: string,
  options: object,
): Promise<{ child: ChildProcess; line: string; exited: Promise<void> }> {
  const child = spawn(process.execPath, [...member, file, JSON.stringify(options)], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const exited = later(once(child, 'exit').then(() => undefined))
  test.onTestFinished(() => {
    child.kill('SIGKILL')
    return exited
  })
  const early = exited.then(() => {
    throw new Error(`${file} ended before it said a word`)
  })
  const [line] = await Promise.race([once(createInterface(child.stdout), 'line'), later(early)])
  return { child, line: String(line), exited }
}

/** Ends these in order, and waits until they have. */
export async function end(fleet: readonly ChildProcess[]): Promise<void> {
  const ends = fleet.map((child) => once(child, 'exit'))
  for (const child of fleet) child.kill('SIGTERM')
  await Promise.all(ends)
}

/** A vendor in a process of its own, and the calls that it received. */
export async function vendorOf(test: Owner, rules: readonly object[]) {
  const { line: url } = await start(test, serveFile, { rules, latencyMs: 5 })
  const ask = async <T>(what: string) => (await (await fetch(`${url}/.vendor/${what}`)).json()) as T
  return { url, report: () => ask<Report>('report'), arrivals: () => ask<Arrival[]>('arrivals') }
}
