/** What a worker reports of its looks at the heartbeats of others. */
import { expect, it } from 'vitest'
import { StoreEpoch } from '../../src/claim/definitions/clock.ts'
import { StoreClock } from '../../src/core/clock.ts'
import { logTo } from '../../src/core/log.ts'
import { storeOn } from '../../src/db/store.ts'
import { type Member, Membership } from '../../src/fleet/membership.ts'
import { claim, emptied, engines, enter, quietTask } from '../claim/engine.ts'
import { lockJob } from '../servers/stranger.ts'
import { suspect, watchWorkers } from './engine.ts'

const quiet = quietTask('quiet')
const at = emptied(engines[0])

it('reports once that a lost worker is not given up, because looks fail or another client has locked its job', async (context) => {
  const lines: string[] = []
  const store = storeOn(at.db, { log: logTo((_, line) => lines.push(line)) })
  let isBusy = true
  const busy = Object.assign(new Error('canceling statement due to statement timeout'), { code: '57014' })
  const call: typeof store.call = (...how) => (isBusy ? Promise.reject(busy) : store.call(...how))
  const member = new Membership({ ...store, call }, {} as Member, new StoreEpoch(store, new StoreClock()))
  await at.sluice.send(quiet, {})
  const lost = await enter(at.db)
  const [job] = (await claim(at.db, lost, [quiet.name], 1)).jobs
  await watchWorkers(at.db)
  await suspect(at.db, [lost])
  const free = await lockJob(context, at.sluice.url, job?.id)
  for (let looks = 0; looks < 4; looks++) expect(await member.watch()).toEqual([])
  expect(lines).toEqual([])
  isBusy = false
  for (let looks = 0; looks < 2; looks++) expect(await member.watch()).toEqual([])
  expect(lines).toEqual([expect.stringContaining('a lost worker cannot be given up')])
  await free()
  expect(await member.watch()).toEqual([lost])
})
