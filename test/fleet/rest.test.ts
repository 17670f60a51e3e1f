/** Which workers may leave out a round. */
import { expect, it } from 'vitest'
import { emptied, engines, enter } from '../claim/engine.ts'
import { noteLook, workerRound } from './engine.ts'

const at = emptied(engines[0])

it('a worker that does not lead may rest in a fleet of five or more, and not in one of four', async () => {
  const mayRest = async () => {
    await noteLook(at.db, at.worker)
    const round = await workerRound(at.db, at.worker)
    expect(round?.leads).toBe(false)
    return round?.rest
  }
  for (let n = 1; n < 4; n++) await enter(at.db)
  expect(await mayRest()).toBe(false)
  await enter(at.db)
  expect(await mayRest()).toBe(true)
  await enter(at.db)
  expect(await mayRest()).toBe(true)
})
