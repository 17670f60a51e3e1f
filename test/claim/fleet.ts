import { type ChildProcess, fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { expect, type TestContext } from 'vitest'
import { z } from 'zod'
import { limit } from '../../src/limits/limit.ts'
import { task } from '../../src/tasks/task.ts'
import { Sluice } from '../../src/sluice.ts'
import { until } from '../until.ts'
import { member } from '../v8.ts'

/** What a worker process reports of an attempt that it begins. */
export interface Run {
  id: string
  attempt: number
  ambiguous: boolean
  pid: number
}

/** The tasks of the worker processes: member.mjs. */
export const note = task('note', {
  input: z.object({ hangs: z.boolean().optional(), blocksMs: z.number().optional(), n: z.number().optional() }),
  run: () => undefined,
})
/** As `note`, under a limit that is granted ahead of time. */
export const paced = task('paced', { limits: [limit('pace', { rate: '200/s' })], run: () => undefined })

/**
 * Workers in processes of their own on one store, and the attempts that they ran; they end with the test.
 * @param first queues of a worker to start before the store is opened here: it owns an embedded directory
 */
export async function fleet(store: string, { onTestFinished }: TestContext, first?: readonly string[]) {
  const children: ChildProcess[] = []
  const runs: Run[] = []
  const start = async (queues: readonly string[] = []) => {
    const env = { ...process.env, PGAPPNAME: 'member' }
    const path = fileURLToPath(new URL('member.mjs', import.meta.url))
    const child = fork(path, [store, ...queues], { execArgv: member, env })
    children.push(child)
    let isReady = false
    child.on('message', (message) => {
      if (message === 'ready') isReady = true
      else runs.push(message as Run)
    })
    await until(() => isReady, 'a worker process is ready', 180_000)
    return child
  }
  onTestFinished(() => {
    for (const child of children) child.kill('SIGKILL')
  })
  const owner = first === undefined ? undefined : await start(first)
  const sluice = await Sluice.open({ store })
  onTestFinished(() => sluice.close())
  return { sluice, runs, start, owner }
}

/** Every job ran once, and again only as an ambiguous attempt. */
export function checkOnce(runs: readonly Run[]): void {
  const keys = runs.map(({ id, attempt }) => `${id} ${attempt}`)
  expect(new Set(keys).size).toBe(keys.length)
  const first = new Set<string>()
  // The lines of a stopped process may arrive after the lines of others.
  for (const { id, ambiguous } of runs.toSorted((a, b) => a.attempt - b.attempt)) {
    if (first.has(id)) expect(ambiguous).toBe(true)
    first.add(id)
  }
}
