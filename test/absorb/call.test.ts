/** What messages of Celery producers mean, without a broker. */
import * as fc from 'fast-check'
import { expect, it } from 'vitest'
import { callOf, followersOf, resultOf, timesOf } from '../../src/absorb/call.ts'
import { inputOf } from '../../src/celery/arguments.ts'
import { signature } from '../../src/celery/signature.ts'
import { blank, type TaskMessage } from '../../src/celery/task-message.ts'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import { messageOf } from '../../src/remote/job-message.ts'
import { task } from '../../src/tasks/task.ts'

const message = (more: Partial<TaskMessage>): TaskMessage => ({ ...blank, id: 'a', task: 't', rootId: 'r', ...more })
const job = { id: 'j', attempt: 1, ambiguous: false } as ClaimedJob
const failed = { state: 'failed', reason: 'exhausted', result: null, error: null }

it('returns the input that a remote task is called with', () => {
  const any = task('any', { run: () => undefined })
  const input = fc.oneof(
    fc.dictionary(fc.string(), fc.jsonValue()),
    fc.array(fc.jsonValue(), { minLength: 1, maxLength: 4 }),
  )
  fc.assert(
    fc.property(input, (given) => {
      const sent = messageOf(job, any, given, { id: 'c', expiresMs: 5, replyTo: 'r' })
      expect(inputOf(sent)).toEqual(given)
    }),
  )
})

it('puts positional arguments beside named ones', () => {
  expect(inputOf({ args: [1, 2], kwargs: { a: 3 } })).toEqual({ a: 3, args: [1, 2] })
  expect(inputOf({ args: [], kwargs: {} })).toEqual({})
})

it('lets a job begin from its eta on, and not after it has expired', () => {
  expect(timesOf({ etaMs: undefined, expiresMs: undefined }, 100)).toEqual({})
  expect(timesOf({ etaMs: 150, expiresMs: 170 }, 100)).toEqual({ at: new Date(150), maxWait: 20 })
  expect(timesOf({ etaMs: undefined, expiresMs: 1e14 }, 100)).toEqual({ maxWait: 366 * 86_400_000 })
  expect(timesOf({ etaMs: 50, expiresMs: 170 }, 100)).toEqual({ maxWait: 70 })
  expect(timesOf({ etaMs: undefined, expiresMs: 100 }, 100)).toBe(undefined)
  expect(timesOf({ etaMs: 200, expiresMs: 150 }, 100)).toBe(undefined)
})

it.each([
  ['done', { state: 'done', reason: null, result: '{"a":1}', error: null }, 'SUCCESS', { a: 1 }],
  ['cancelled', { ...failed, state: 'cancelled' }, 'REVOKED', { type: 'TaskRevokedError', args: ['revoked'] }],
  ['expired', { ...failed, reason: 'expired' }, 'REVOKED', { type: 'TaskRevokedError', args: ['expired'] }],
  [
    'failed',
    { ...failed, error: '{"name":"TypeError","message":"no"}' },
    'FAILURE',
    { type: 'TypeError', args: ['no'] },
  ],
])('reports a job that is %s', (_, ended, state, value) => {
  expect(resultOf('a', ended)).toMatchObject({ id: 'a', state, value })
})

it('continues a chain with the result, and keeps what comes after', () => {
  const own = { task_id: 'b', reply_to: 'q', queue: 'mail' }
  const chain = [signature('second', [2], { options: own }), signature('third')]
  const call = callOf(message({ chain, callbacks: [signature('told', [], { immutable: true })] }), 'celery')
  const result = resultOf('a', { state: 'done', reason: null, result: '1', error: null })
  const [told, second] = followersOf('a', JSON.parse(JSON.stringify(call)) as typeof call, result)
  expect(told).toMatchObject({ message: { task: 'told', args: [] }, address: { exchange: '', routingKey: 'celery' } })
  expect(second).toMatchObject({
    message: { id: 'b', task: 'second', args: [1, 2], parentId: 'a', rootId: 'r', replyTo: 'q', chain: [chain[1]] },
    address: { exchange: '', routingKey: 'mail' },
  })
})

it('sends what follows an error only then, with the id of the task', () => {
  const call = callOf(message({ errbacks: [signature('mourn')], callbacks: [signature('told')] }), 'celery')
  expect(followersOf('a', call, resultOf('a', failed)).map((one) => one.message)).toMatchObject([
    { task: 'mourn', args: ['a'] },
  ])
  expect(followersOf('a', call, resultOf('a', { ...failed, state: 'cancelled' }))).toEqual([])
})
