/** Jobs in hand whose rows another client has locked. */
import { expect, it } from 'vitest'
import { Sluice } from '../../src/sluice.ts'
import { task } from '../../src/tasks/task.ts'
import { z } from 'zod'
import { claim, claimsInHand, count, enter, quietTask, workerIds } from '../claim/engine.ts'
import type { Owner } from '../fleet/children.ts'
import { suspect, watchWorkers } from '../fleet/engine.ts'
import { freshDatabase } from '../servers/database.ts'
import { lockJob } from '../servers/stranger.ts'
import { until } from '../until.ts'

/** A store of one test's own. */
async function open({ onTestFinished }: Owner): Promise<Sluice> {
  const sluice = await Sluice.open({ store: (await freshDatabase()).url })
  onTestFinished(() => sluice.close())
  return sluice
}

it.concurrent('jobs in hand are not cancelled, delay the record of no other end, and are recorded when they are free', async (context) => {
  const sluice = await open(context)
  let release = () => {}
  const released = new Promise<void>((resolve) => (release = resolve))
  let running = 0
  const work = task('work', {
    input: z.object({ isThrown: z.boolean() }),
    retry: { base: '1h', max: '1h' },
    run: async ({ isThrown }) => {
      running++
      await released
      if (isThrown) throw new Error('once')
    },
  })
  const worker = await sluice.work([work], { concurrency: 6 })
  const locked = await sluice.send(work, { isThrown: false })
  for (const isThrown of [false, false, true, true]) await sluice.send(work, { isThrown })
  await until(() => running === 5, 'all run')
  const free = await lockJob(context, sluice.url, locked)
  await expect(sluice.jobs.cancel(locked)).rejects.toThrow('another transaction has locked it')
  release()
  await until(async () => (await sluice.jobs.status()).running === 1, 'the others are recorded')
  await sluice.send(work, { isThrown: false })
  await until(async () => (await sluice.jobs.status()).done === 3, 'a later one, too')
  await free()
  await until(async () => (await sluice.jobs.status()).done === 4, 'it is recorded')
  await worker.stop()
  expect(await claimsInHand(sluice.db)).toBe(0)
  expect(await count(sluice.db, 'sluice.done where attempt > 1')).toBe(0)
})

it.concurrent('jobs in hand of a lost worker delay the rescue of no other one, and are rescued when they are free', async (context) => {
  const sluice = await open(context)
  const { db } = sluice
  const quiet = quietTask('quiet')
  const held = new Map<string, string>()
  for (let n = 0; n < 2; n++) {
    const worker = await enter(db)
    await sluice.send(quiet, {})
    held.set(worker, (await claim(db, worker, ['quiet'], 1)).jobs[0]?.id ?? '')
  }
  await watchWorkers(db)
  await suspect(db)
  const [locked = '', other = ''] = held.keys()
  const free = await lockJob(context, sluice.url, held.get(locked) ?? '')
  const look = async () => {
    await suspect(db)
    return watchWorkers(db).catch((): string[] => [])
  }
  await until(async () => (await look()).includes(other), 'the other one is rescued')
  expect(await workerIds(db)).toContain(locked)
  await free()
  await until(async () => (await look()).includes(locked), 'it is rescued')
})

it.concurrent('jobs in hand of a lost worker hold up no claim of their class', async (context) => {
  const sluice = await open(context)
  const { db } = sluice
  const quiet = quietTask('shared')
  const lost = await enter(db)
  await sluice.send(quiet, {})
  const { jobs } = await claim(db, lost, ['shared'], 1)
  await watchWorkers(db)
  const free = await lockJob(context, sluice.url, jobs[0]?.id ?? '')
  const worker = await enter(db)
  let isOver = false
  const looking = (async () => {
    while (!isOver) {
      await suspect(db, [lost])
      await watchWorkers(db).catch(() => {})
    }
  })()
  context.onTestFinished(async () => {
    isOver = true
    await looking
  })
  // A claim waits a second at most, and fails then.
  for (let n = 0; n < 5; n++) {
    await sluice.send(quiet, {})
    expect((await claim(db, worker, ['shared'], 1)).jobs).toHaveLength(1)
  }
  expect(await workerIds(db)).toContain(lost)
  await free()
})

it.concurrent('jobs in hand hold up no other job when many are cancelled', async (context) => {
  const sluice = await open(context)
  let release = () => {}
  const released = new Promise<void>((resolve) => (release = resolve))
  let running = 0
  const many = task('many', { input: z.object({}), run: () => (running++, released) })
  const worker = await sluice.work([many], { concurrency: 3 })
  const ids = []
  for (let n = 0; n < 3; n++) ids.push(await sluice.send(many, {}))
  await until(() => running === 3, 'all run')
  const free = await lockJob(context, sluice.url, ids[0] ?? '')
  await expect(sluice.jobs.cancelMany({ task: 'many' })).rejects.toMatchObject({ code: 'SLUICE_STORE_UNREACHABLE' })
  const states = await Promise.all(ids.map(async (id) => (await sluice.jobs.get(id))?.state))
  expect(states).toEqual(['running', 'cancelled', 'cancelled'])
  await free()
  expect(await sluice.jobs.cancelMany({ task: 'many' })).toBe(1)
  release()
  await worker.stop()
})
