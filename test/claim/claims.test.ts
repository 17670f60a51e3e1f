/** What a worker's process does when the answer to a claim is not the jobs. */
import { describe, expect, it, onTestFinished } from 'vitest'
import { type Clock, systemClock } from '../../src/core/clock.ts'
import { newId } from '../../src/core/hash.ts'
import { storeOn } from '../../src/db/store.ts'
import { Claims } from '../../src/claim/claim.ts'
import { attemptCalls, claim, count, emptied, mainEngines, perTenant, quietTask } from './engine.ts'
import { createClasses } from './engine-parts.ts'

const quiet = quietTask('quiet', [perTenant('each', '100000/s')])

describe.each(mainEngines)('a worker that claims, on $name', (engine) => {
  const at = emptied(engine)
  const claimed = async (want: number) => {
    const who = { worker: at.worker, queues: undefined, tasks: [quiet.name] }
    const mode = { idle: false, ahead: 0 }
    return (await new Claims(storeOn(at.db)).claim(who, want, mode, AbortSignal.timeout(60_000))).jobs
  }

  it('checks a store whose server has started since the last look, before it gets jobs', async () => {
    await at.sluice.send(quiet, { tenant: 'a', n: 1 })
    await at.db.query('update sluice.epoch set server_at = null')
    // Nothing but the worker checks it.
    expect((await claim(at.db, at.worker, [quiet.name], 1)).jobs).toEqual([])
    expect(await claimed(1)).toMatchObject([{ task: quiet.name, input: { n: 1 } }])
    expect(await count(at.db, 'sluice.epoch where server_at = pg_postmaster_start_time()')).toBe(1)
  })

  it('rests between its tries while the check of a started server does not reach that server', async () => {
    await at.sluice.send(quiet, { tenant: 'a', n: 1 })
    await createClasses(at.db)
    await at.db.query('update sluice.epoch set server_at = null')
    let rests = 0
    let checks = 0
    // It draws a number for the length of each rest.
    const clock: Clock = { ...systemClock, random: () => (rests++, 0) }
    const store = storeOn(at.db, { clock })
    const call: typeof store.call = (name, ...rest) => {
      if (name === attemptCalls.claim || rests === 3) return store.call(name, ...rest)
      if (++checks > 10) throw new Error('it does not rest')
      return Promise.resolve([])
    }
    const claims = new Claims({ ...store, call })
    const who = { worker: at.worker, queues: undefined, tasks: [quiet.name] }
    expect((await claims.claim(who, 1, { idle: false, ahead: 0 }, AbortSignal.timeout(60_000))).jobs).toHaveLength(1)
  })

  it.each([
    ['a single lane', ['a', 'a', 'a', 'a']],
    ['two lanes', ['a', 'a', 'b', 'b']],
  ])('gets all of the other jobs of %s when one goes away meanwhile', async (_, tenants) => {
    const ids = tenants.map(() => newId())
    for (const [n, tenant] of tenants.entries()) await at.sluice.send(quiet, { tenant, n }, { id: ids[n] ?? '' })
    // As if another session had ended it first: the job that carries what all of its lane have in common.
    await at.db.query(`create function public.miss() returns trigger language plpgsql as $$ begin return null; end $$`)
    onTestFinished(async () => void (await at.db.query('drop function if exists public.miss cascade')))
    await at.db.query(
      `create trigger miss before update on sluice.job for each row when (new.claim is not null and new.id = '${ids[0]}') execute function public.miss()`,
    )
    const jobs = (await claimed(4)).toSorted((a, b) => a.seq - b.seq)
    expect(jobs).toMatchObject([1, 2, 3].map((n) => ({ id: ids[n], task: quiet.name, attempt: 1, input: { n } })))
  })
})
