/** What a worker reports of its looks at the heartbeats of others. */
import { expect, it } from 'vitest'
import { StoreEpoch } from '../../src/claim/definitions/clock.ts'
import { StoreClock, systemClock } from '../../src/core/clock.ts'
import { logTo } from '../../src/core/log.ts'
import { storeOn } from '../../src/db/store.ts'
import { type Member, Membership } from '../../src/fleet/membership.ts'
import { claim, emptied, engines, enter, quietTask } from '../claim/engine.ts'
import { lockJob } from '../servers/stranger.ts'
import { suspect, watchWorkers } from './engine.ts'

const quiet = quietTask('quiet')
const at = emptied(engines[0])

/** Members of a fleet, their log, and a clock that the test moves. `fails`: each look fails, because the store is busy. */
function fleet(members: number) {
  const state = { lines: [] as string[], laterMs: 0, fails: false }
  const clock = { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + state.laterMs }
  const store = storeOn(at.db, { clock, log: logTo((_, line) => state.lines.push(line)) })
  const busy = Object.assign(new Error('canceling statement due to statement timeout'), { code: '57014' })
  const call: typeof store.call = (...how) => (state.fails ? Promise.reject(busy) : store.call(...how))
  const epoch = new StoreEpoch(store, new StoreClock())
  const all = Array.from({ length: members }, () => new Membership({ ...store, call }, {} as Member, epoch))
  return { state, all }
}

const reported = expect.stringContaining('a lost worker cannot be given up')

it('a worker reports once that another client has locked the job of a worker that was lost ten seconds ago, whoever has looked', async (context) => {
  const { state, all } = fleet(3)
  await at.sluice.send(quiet, {})
  const lost = await enter(at.db)
  const [job] = (await claim(at.db, lost, [quiet.name], 1)).jobs
  await watchWorkers(at.db)
  const free = await lockJob(context, at.sluice.url, job?.id)
  for (const seconds of [10, 14]) {
    await suspect(at.db, [lost], seconds)
    for (const member of all) expect(await member.watch()).toEqual([])
  }
  expect(state.lines).toEqual([])
  await suspect(at.db, [lost], 20)
  for (let looks = 0; looks < 2; looks++) expect(await all[0]?.watch()).toEqual([])
  expect(state.lines).toEqual([reported])
  await free()
  expect(await all[1]?.watch()).toEqual([lost])
})

it('a worker reports once that looks have failed for ten seconds, and again after one that did not', async () => {
  const { state, all } = fleet(1)
  for (let times = 1; times <= 2; times++) {
    state.fails = true
    for (let looks = 0; looks < 6; looks++) expect(await all[0]?.watch()).toEqual([])
    expect(state.lines).toHaveLength(times - 1)
    state.laterMs += 10_000
    for (let looks = 0; looks < 2; looks++) expect(await all[0]?.watch()).toEqual([])
    expect(state.lines).toEqual(Array.from({ length: times }, () => reported))
    state.fails = false
    await all[0]?.watch()
  }
})
