/** Jobs that stock Celery workers execute: RabbitMQ and Celery as they are. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { dispatch, openStage, pythonTask, type Stage } from './stage.ts'

let stage: Stage
beforeAll(async () => void (stage = await openStage()))
afterAll(() => stage?.close())

describe.concurrent('a job of a remote task', () => {
  it('runs on a stock worker, which knows its job, and its result is in its record', async (context) => {
    const add = pythonTask('add', await stage.queue())
    const { sluice, ended } = await dispatch(stage, [add], context)
    const id = await sluice.send(add, { x: 2, y: 3 })
    expect(await ended(id)).toMatchObject({ state: 'done', result: 5 })
    expect(stage.seen(id)).toMatchObject([{ root: id, attempt: 1, ambiguous: false, retries: 0 }])
  })

  it('fails with the type and traceback of Python, and is retried as its task defines', async (context) => {
    const fail = pythonTask('fail', await stage.queue(), { retry: { attempts: 2, base: 1, max: 1 } })
    const { sluice, ended } = await dispatch(stage, [fail], context)
    const id = await sluice.send(fail, {})
    const job = await ended(id)
    expect(job).toMatchObject({ state: 'failed', reason: 'exhausted' })
    console.log(JSON.stringify(job, null, 1))
    expect(stage.seen(id).map(({ attempt }) => attempt)).toEqual([1, 2])
  })
})
