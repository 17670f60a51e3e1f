/** Which of its own claims a worker finds in the store, because their answer may have been lost. */
import { expect, it } from 'vitest'
import { newId } from '../../src/core/hash.ts'
import { type Member, Membership } from '../../src/fleet/membership.ts'
import { storeOn } from '../../src/db/store.ts'
import { emptied, engines } from '../claim/engine.ts'

const at = emptied(engines[0])

it('a worker finds its claims of before an outage in its first round after it, and reads old ones rarely', async () => {
  const own = { tasks: [], homes: [], once: [], onFailed: [], currently: [], remote: [], version: '0', labels: {} }
  const epoch = {
    check: async () => {},
    checkBy: async (send: (known: readonly null[]) => Promise<unknown[]>) => (await send([null, null, null]))[0],
  }
  const member = new Membership(
    storeOn(at.db),
    { ...own, queues: undefined, slots: 1, hasStints: () => false } satisfies Member,
    epoch as never,
  )
  const { worker } = await member.registerClaimer()
  const round = async () => (await member.runRound(false)).claims
  const claim = newId()
  await at.db.query(
    `insert into sluice.claim (id, worker, at, lanes, seqs)
     select $1, $2, sluice.now_us() + clock_offset_us, '{1}', '{1}' from sluice.epoch`,
    [claim, worker],
  )
  expect(await round()).toEqual([])
  await at.db.query('update sluice.epoch set clock_offset_us = clock_offset_us + 60000000')
  expect(await round()).toEqual([claim])
  const later: (readonly string[])[] = []
  while (later.length < 30) later.push(await round())
  expect(later.filter((claims) => claims.includes(claim))).toHaveLength(1)
})
