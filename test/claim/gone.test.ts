/** Jobs that are deleted between their selection and their claim: the jobs behind them do not wait for the next poll. */
import { describe, expect, it, onTestFinished } from 'vitest'
import { claim, claimAll, emptied, mainEngines, quietTask } from './engine.ts'

describe.each(mainEngines)('a job that goes away while it is claimed, on $name', (engine) => {
  const at = emptied(engine)

  it.each([
    ['of a single lane', [0]],
    ['of two lanes', [0, 1]],
  ])('%s, makes the worker claim again at once', async (_, priorities) => {
    const { sluice, db, worker } = at
    const own = quietTask('gone')
    for (const priority of priorities) for (let n = 0; n < 3; n++) await sluice.send(own, {}, { priority })
    const [first] = (await claim(db, worker, [own.name], 1)).jobs
    expect(first).toBeDefined()
    // As if another session had ended them first.
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
