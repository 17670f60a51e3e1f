/** Takes from several processes, beside workers, on a real server: the vendor, in a process of its own, is the truth. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { afterEach, expect, it, onTestFinished } from 'vitest'
import { z } from 'zod'
import { type AnyTask, limit, Sluice, task } from '../../src/index.ts'
import type { Arrival } from '../../src/testing/proof.ts'
import type { Report } from '../../src/testing/vendor.ts'
import { ownClock } from '../claim/engine.ts'
import { freshDatabase } from '../servers/database.ts'
import { copies } from '../rows.ts'
import { later, until } from '../until.ts'
import { acquire } from './engine.ts'
import { member } from '../v8.ts'

const memberFile = fileURLToPath(new URL('./member.mjs', import.meta.url))
const serveFile = fileURLToPath(new URL('../../dist/testing/serve.js', import.meta.url))
const startMs = Date.UTC(2026, 10, 21)

const children = new Set<ChildProcess>()
afterEach(async () => {
  const exits = [...children].map((child) => once(child, 'exit'))
  for (const child of children) child.kill('SIGKILL')
  await Promise.all(exits)
})

function start(file: string, options: object) {
  const child = spawn(process.execPath, [...member, file, JSON.stringify(options)], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  children.add(child)
  const exited = later(once(child, 'exit').then(() => void children.delete(child)))
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]()
  return { child, exited, line: async () => String((await lines.next()).value) }
}

async function open() {
  const { url: store } = await freshDatabase()
  const sluice = await Sluice.open({ store })
  onTestFinished(() => sluice.close())
  return { store, sluice }
}

it('exactly 10 of 50 simultaneous tries from several processes are granted', async () => {
  const { store, sluice } = await open()
  await ownClock(sluice.db, startMs)
  const members = Array.from({ length: 3 }, (_, n) =>
    start(memberFile, { store, role: 'tries', count: n === 0 ? 18 : 16 }),
  )
  const granted = await Promise.all(members.map(async ({ line }) => Number(await line())))
  expect(granted.reduce((sum, one) => sum + one, 0)).toBe(10)
})

it('a place whose holder was killed with -9 is free when its lease expires, and not before', async () => {
  const { store, sluice } = await open()
  const clock = await ownClock(sluice.db, startMs)
  const holder = start(memberFile, { store, role: 'holds' })
  expect(await holder.line()).toBe('"held"')
  holder.child.kill('SIGKILL')
  await holder.exited
  // Without this process's knowledge of the clock, which would reject its steps.
  for (const ms of [0, 10_000, 14_999]) {
    await clock.set(startMs + ms)
    expect(await acquire(sluice.db, 'place')).toMatchObject({ granted: false })
  }
  await clock.set(startMs + 15_000)
  expect(await acquire(sluice.db, 'place')).toMatchObject({ granted: true })
  expect(await acquire(sluice.db, 'place')).toMatchObject({ granted: false })
})

it('workers and takers in four processes exceed nothing at the vendor, and neither side starves the other', async () => {
  const { store, sluice } = await open()
  const rules = [{ name: 'all', algorithm: 'sliding log', limit: 160, windowMs: 4_000 }]
  const server = start(serveFile, { rules, latencyMs: 5 })
  const vendor = await server.line()
  const shared = limit('shared', { rate: '160/4s', transit: '1s' })
  const call = task('call', { input: z.object({}), limits: [shared], run: () => undefined }) as unknown as AnyTask
  const callers = [1, 2].map(() => start(memberFile, { store, vendor, role: 'calls', count: 40 }))
  await Promise.all(callers.map(({ line }) => line()))
  const workers = [1, 2].map(() => start(memberFile, { store, vendor, role: 'works' }))
  await Promise.all(workers.map(({ line }) => line()))
  await sluice.sendMany(call, copies(80))
  for (const { child } of callers) child.stdin.write('go\n')
  await Promise.all(callers.map(({ line }) => line()))
  const done = async () => (await sluice.db.query(`select 1 from sluice.done where state = 'done'`)).length === 80
  await until(done, 'all jobs are done', 90_000)
  const arrivals = (await (await fetch(`${vendor}/.vendor/arrivals`)).json()) as Arrival[]
  const report = (await (await fetch(`${vendor}/.vendor/report`)).json()) as Report
  expect(report.vendor429).toBe(0)
  expect(report.rules.map((rule) => rule.exceeded)).toEqual([0])
  const of = (path: string, among = arrivals) => among.filter((one) => one.path === path).length
  expect([of('/take'), of('/job')]).toEqual([80, 80])
  // From the time when both ran until the first of them had all.
  const last = (path: string) => arrivals.findLastIndex((one) => one.path === path)
  const first = (path: string) => arrivals.findIndex((one) => one.path === path)
  const both = arrivals.slice(Math.max(first('/take'), first('/job')), Math.min(last('/take'), last('/job')))
  const share = of('/take', both) / both.length
  console.log(`takes had ${share.toFixed(2)} of ${both.length} while both waited`)
  expect(share).toBeGreaterThan(0.2)
  expect(share).toBeLessThan(0.8)
})
