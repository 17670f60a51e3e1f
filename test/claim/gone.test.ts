/** Jobs that go away between the look at them and their claim: those behind them do not wait for the next look. */
import { describe, expect, it, onTestFinished } from 'vitest'
import { claim, claimAll, emptied, mainEngines, quietTask } from './engine.ts'

describe.each(mainEngines)('a job that goes away while it is claimed, on $name', (engine) => {
  const at = emptied(engine)

  it.each([
    ['of a lone lane', [0]],
    ['of two', [0, 1]],
  ])('%s: the claim asks again', async (_, priorities) => {
    const { sluice, db, worker } = at
    const own = quietTask('gone')
    for (const priority of priorities) for (let n = 0; n < 3; n++) await sluice.send(own, {}, { priority })
    const [first] = (await claim(db, worker, [own.name], 1)).jobs
    expect(first).toBeDefined()
    // As if somebody else had ended them first.
    await db.query(`create function public.miss() returns trigger language plpgsql as $$ begin return null; end $$`)
    await db.query(
      `create trigger miss before update on sluice.job for each row when (new.claim is not null) execute function public.miss()`,
    )
    onTestFinished(async () => void (await db.query('drop function if exists public.miss cascade')))
    expect(await claim(db, worker, [own.name], priorities.length)).toMatchObject({ jobs: [], again: true })
    await db.query('drop function public.miss cascade')
    expect(await claimAll(db, worker, [own.name], 9)).toHaveLength(priorities.length * 3 - 1)
    expect((await claim(db, worker, [own.name], 9)).again).toBe(false)
  })
})
