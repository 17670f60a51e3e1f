import { type ChildProcess, fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { z } from 'zod'
import { afterAll, describe, expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { Sluice } from '../../src/sluice.ts'
import { task } from '../../src/dispatch/task.ts'
import { freshDatabase } from '../servers/database.ts'
import { startPostgres } from '../servers/postgres.ts'
import { count, until } from './engine.ts'

interface Run {
  id: string
  attempt: number
  ambiguous: boolean
  pid: number
}

const note = task('note', {
  input: z.object({ hangs: z.boolean().optional(), n: z.number().optional() }),
  run: () => undefined,
})
const children: ChildProcess[] = []
const sluices: Sluice[] = []
afterAll(async () => {
  for (const child of children) child.kill('SIGKILL')
  await Promise.all(sluices.map((sluice) => sluice.close()))
})

/** Workers in processes of their own on one database, and what they ran. */
async function fleet(url: string) {
  const sluice = await Sluice.open({ store: url })
  sluices.push(sluice)
  const runs: Run[] = []
  const start = async () => {
    const child = fork(fileURLToPath(new URL('member.mjs', import.meta.url)), [url], { execArgv: [] })
    children.push(child)
    let isReady = false
    child.on('message', (message) => {
      if (message === 'ready') isReady = true
      else runs.push(message as Run)
    })
    await until(() => isReady, 30_000, 'a worker process is ready')
    return child
  }
  return { sluice, runs, start }
}

/** Every job ran once, and again only in doubt. */
function checkOnce(runs: readonly Run[]): void {
  const keys = runs.map(({ id, attempt }) => `${id} ${attempt}`)
  expect(new Set(keys).size).toBe(keys.length)
  const first = new Set<string>()
  for (const { id, ambiguous } of runs) {
    if (first.has(id)) expect(ambiguous).toBe(true)
    first.add(id)
  }
}

describe.concurrent('a worker process', () => {
  it('that is killed has its jobs run elsewhere within 15 s, in doubt', async () => {
    const { sluice, runs, start } = await fleet((await freshDatabase()).url)
    const victim = await start()
    await sluice.sendMany(
      note,
      Array.from({ length: 20 }, () => ({ hangs: true })),
    )
    await until(() => runs.length === 20, 10_000, 'all begun')
    await start()
    const killedMs = systemClock.monotonicMs()
    victim.kill('SIGKILL')
    await until(
      async () => (await count(sluice.db, `sluice.done where state = 'done'`)) === 20,
      25_000,
      'all done elsewhere',
    )
    expect(systemClock.monotonicMs() - killedMs).toBeLessThan(15_000)
    expect(runs).toHaveLength(40)
    checkOnce(runs)
    expect(await count(sluice.db, 'sluice.done where crashes = 1 and attempt = 2 and ambiguous')).toBe(20)
    expect(await count(sluice.db, 'sluice.worker')).toBe(1)
  })

  it('that is stopped for long does nothing twice when it goes on, and comes back', async () => {
    const { sluice, runs, start } = await fleet((await freshDatabase()).url)
    const sleeper = await start()
    await sluice.sendMany(
      note,
      Array.from({ length: 5 }, () => ({ hangs: true })),
    )
    await until(() => runs.length === 5, 10_000, 'all begun')
    const watcher = await start()
    await sluice.sendMany(
      note,
      Array.from({ length: 400 }, (_, n) => ({ n })),
    )
    sleeper.kill('SIGSTOP')
    await until(async () => (await count(sluice.db, 'sluice.done')) === 405, 25_000, 'all done elsewhere')
    const before = runs.filter(({ pid }) => pid === sleeper.pid).length
    sleeper.kill('SIGCONT')
    await until(async () => (await count(sluice.db, 'sluice.worker')) === 2, 15_000, 'it registers anew')
    watcher.kill('SIGSTOP')
    await sluice.sendMany(
      note,
      Array.from({ length: 5 }, (_, n) => ({ n })),
    )
    await until(async () => (await count(sluice.db, 'sluice.done')) === 410, 20_000, 'it works again')
    expect(runs.filter(({ pid }) => pid === sleeper.pid).length).toBeGreaterThanOrEqual(before + 5)
    checkOnce(runs)
    expect(new Set(runs.map(({ id }) => id)).size).toBe(410)
  })

  it('is not given up because the server was away, runs nothing twice, and is back within 5 s', async () => {
    const server = await startPostgres()
    try {
      const { sluice, runs, start } = await fleet(server.url)
      await Promise.all([start(), start()])
      await until(async () => (await count(sluice.db, 'sluice.worker')) === 2, 10_000, 'both are registered')
      const workers = await sluice.db.query('select id from sluice.worker order by id')
      let sent = 0
      await sluice.sendMany(
        note,
        Array.from({ length: 500 }, () => ({ n: sent++ })),
      )
      await server.stop('immediate')
      const stoppedMs = systemClock.monotonicMs()
      await until(() => systemClock.monotonicMs() - stoppedMs > 10_000, 11_000, 'ten seconds')
      await server.start()
      const backMs = systemClock.monotonicMs()
      await sluice.sendMany(
        note,
        Array.from({ length: 100 }, () => ({ n: sent++ })),
      )
      await until(async () => (await count(sluice.db, 'sluice.done')) === sent, 20_000, 'all done')
      expect(systemClock.monotonicMs() - backMs).toBeLessThan(5_000)
      // Nobody is suspected later on either: all beats are seen to move.
      await until(
        async () => (await count(sluice.db, 'sluice.doubt where unchanged_us < 3000000')) === 2,
        20_000,
        'no doubts',
      )
      expect(await sluice.db.query('select id from sluice.worker order by id')).toEqual(workers)
      expect(await count(sluice.db, 'sluice.done where crashes > 0 or ambiguous')).toBe(0)
      checkOnce(runs)
      expect(runs).toHaveLength(sent)
      await sluice.close()
    } finally {
      await server.close()
    }
  })
})
