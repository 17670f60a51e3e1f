/** What messages of Celery producers mean, without a broker. */
import * as fc from 'fast-check'
import { expect, it } from 'vitest'
import {
  callOf,
  limitMsOf,
  chordFollowers,
  followersOf,
  chordPartsOf,
  refusedResult,
  repliesOf,
  resultOf,
  revokedResult,
  timesOf,
  unknownTask,
} from '../../src/absorb/call.ts'
import { inputOf } from '../../src/celery/arguments.ts'
import { readSignature, signature } from '../../src/celery/signature.ts'
import { blank, type TaskMessage } from '../../src/celery/task-message.ts'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import { messageOf } from '../../src/remote/job-message.ts'
import { task } from '../../src/tasks/task.ts'
import { forAll } from '../for-all.ts'

const message = (more: Partial<TaskMessage>): TaskMessage => ({ ...blank, id: 'a', task: 't', rootId: 'r', ...more })
const job = { id: 'j', attempt: 1, ambiguous: false, admitted: 0 } as ClaimedJob
const failed = { state: 'failed', reason: 'exhausted', result: null, error: null }

it('an absorber returns the input that a remote task is called with', () => {
  const any = task('any', { run: () => undefined })
  const input = fc.oneof(
    fc.dictionary(fc.string(), fc.jsonValue()),
    fc.array(fc.jsonValue(), { minLength: 1, maxLength: 4 }),
  )
  forAll(input, (given) => {
    const sent = messageOf(job, any, given, { id: 'c', expiresMs: 5, replyTo: 'r' })
    expect(inputOf(sent)).toEqual(given)
  })
})

it('an absorber calls a remote task with the arguments that a producer gave', () => {
  const any = task('any', { run: () => undefined })
  const args = fc.array(fc.jsonValue(), { maxLength: 3 })
  const kwargs = fc.dictionary(
    fc.string().filter((name) => name !== 'args'),
    fc.jsonValue(),
  )
  forAll(fc.record({ args, kwargs }), (given) => {
    const sent = messageOf(job, any, inputOf(given), { id: 'c', expiresMs: 5, replyTo: 'r' })
    expect({ args: sent.args, kwargs: sent.kwargs }).toEqual(given)
  })
})

it('an absorber puts positional arguments beside named ones', () => {
  expect(inputOf({ args: [1, 2], kwargs: { a: 3 } })).toEqual({ a: 3, args: [1, 2] })
  expect(inputOf({ args: [], kwargs: {} })).toEqual({})
})

it('an absorber lets a job begin from its eta on, and not after it has expired', () => {
  expect(timesOf({ etaMs: undefined, expiresMs: undefined }, 100)).toEqual({})
  expect(timesOf({ etaMs: 150, expiresMs: 170 }, 100)).toEqual({ at: new Date(150), maxWait: 20 })
  expect(timesOf({ etaMs: undefined, expiresMs: 1e14 }, 100)).toEqual({ maxWait: 366 * 86_400_000 })
  expect(timesOf({ etaMs: 50, expiresMs: 170 }, 100)).toEqual({ maxWait: 70 })
  expect(timesOf({ etaMs: undefined, expiresMs: 100 }, 100)).toBe(undefined)
  expect(timesOf({ etaMs: 200, expiresMs: 150 }, 100)).toBe(undefined)
})

it('an absorber limits the attempts of a job by the shorter time limit of its message, if that has one', () => {
  expect(limitMsOf({ hardLimitS: 60, softLimitS: 0.5 })).toBe(500)
  expect(limitMsOf({ hardLimitS: 3, softLimitS: undefined })).toBe(3_000)
  expect(limitMsOf({ hardLimitS: undefined, softLimitS: 0.0001 })).toBe(1)
  expect(limitMsOf({ hardLimitS: 0, softLimitS: undefined })).toBe(undefined)
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
])('an absorber reports a job that is %s', (_, ended, state, value) => {
  expect(resultOf('a', ended)).toMatchObject({ id: 'a', state, value })
})

it('an absorber continues a chain with the result, and keeps what comes after', () => {
  const own = { task_id: 'b', reply_to: 'q', queue: 'mail' }
  const chain = [signature('second', [2], { options: own }), signature('third')]
  const call = callOf(message({ chain, callbacks: [signature('told', [], { immutable: true })] }), 'celery')
  const result = resultOf('a', { state: 'done', reason: null, result: '1', error: null })
  const [told, second] = followersOf('a', JSON.parse(JSON.stringify(call)) as typeof call, result, 0)
  expect(told).toMatchObject({ message: { task: 'told', args: [] }, address: { exchange: '', routingKey: 'celery' } })
  expect(second).toMatchObject({
    message: { id: 'b', task: 'second', args: [1, 2], parentId: 'a', rootId: 'r', replyTo: 'q', chain: [chain[1]] },
    address: { exchange: '', routingKey: 'mail' },
  })
})

it('an absorber sends what follows an error only then, with the id of the task', () => {
  const call = callOf(message({ errbacks: [signature('mourn')], callbacks: [signature('told')] }), 'celery')
  expect(followersOf('a', call, resultOf('a', failed), 0).map((one) => one.message)).toMatchObject([
    { task: 'mourn', args: ['a'] },
  ])
  expect(followersOf('a', call, resultOf('a', { ...failed, state: 'cancelled' }), 0)).toEqual([])
})

it('an absorber gives each task that follows an id of its own, and the same one whenever that is repeated', () => {
  const [mourn, told] = [signature('mourn'), signature('told')]
  const body = signature('total', [], { options: { link_error: [mourn, mourn] } })
  const how = { errbacks: [mourn, mourn], callbacks: [told, told], chain: [told], chord: body, groupId: 'g' }
  const call = callOf(message(how), 'celery')
  const done = resultOf('a', { state: 'done', reason: null, result: '1', error: null })
  const error = { type: 'ChordError', module: 'm', args: [] }
  const ids = () =>
    [done, resultOf('a', failed)].flatMap((result) => {
      const chords = chordPartsOf(call, result).flatMap((part) =>
        [{ results: [1] }, { error }].flatMap((outcome) => chordFollowers(part, call, outcome, 0)),
      )
      return [...followersOf('a', call, result, 0), ...chords].map((one) => `${one.message.task} ${one.message.id}`)
    })
  expect(ids()).toEqual(ids())
  // What follows the chord is in both lists.
  expect(new Set(ids()).size).toBe(8)
  const ofMember = (id: string) =>
    chordPartsOf(call, resultOf(id, failed)).flatMap((part) =>
      chordFollowers(part, call, { error }, 0).map(({ message: sent }) => sent.id),
    )
  expect(ofMember('a')).toEqual(ofMember('b'))
})

it('an absorber sends a task that follows as its signature wants it: when, for how long, with which limits and headers', () => {
  const options = {
    countdown: 10,
    expires: '1970-01-01T00:01:00+00:00',
    time_limit: 9,
    headers: { mine: 'x' },
    routing_key: 'key',
    exchange: 'jobs',
  }
  const call = callOf(message({ callbacks: [signature('told', [], { options })] }), 'celery')
  const done = resultOf('a', { state: 'done', reason: null, result: '1', error: null })
  expect(followersOf('a', call, done, 5_000)).toMatchObject([
    {
      message: { etaMs: 15_000, expiresMs: 60_000, hardLimitS: 9, headers: { mine: 'x' } },
      address: { exchange: 'jobs', routingKey: 'key' },
    },
  ])
})

it('an absorber counts for a chord, and fails the rest of its chain', () => {
  const body = signature('total', [], { options: { task_id: 'z', link_error: [signature('mourn')] } })
  const last = signature('last', [], { options: { task_id: 'l', group_id: 'h', group_index: 2, chord: body } })
  const call = callOf(message({ chord: body, groupId: 'g', groupIndex: 1, chain: [last], replyTo: 'q' }), 'celery')
  const [done, lost] = [resultOf('a', { state: 'done', reason: null, result: '1', error: null }), resultOf('a', failed)]
  expect(chordPartsOf(call, done)).toMatchObject([{ groupId: 'g', index: 1, result: { id: 'a', state: 'SUCCESS' } }])
  expect(repliesOf(call, done)).toHaveLength(1)
  expect(chordPartsOf(call, lost)).toMatchObject([
    { groupId: 'g', index: 1, result: { id: 'a' } },
    { groupId: 'h', index: 2, result: { id: 'l', state: 'FAILURE' } },
  ])
  expect(repliesOf(call, lost)).toMatchObject([{ result: { id: 'a' } }, { result: { id: 'l' }, to: { replyTo: 'q' } }])
  const revoked = revokedResult('a', 'terminated')
  expect(chordPartsOf(call, revoked).map(({ result }) => [result.id, result.state])).toEqual([
    ['a', 'REVOKED'],
    ['l', 'REVOKED'],
  ])
  expect(repliesOf(call, revoked)).toHaveLength(2)
  const [part] = chordPartsOf(call, done)
  if (part === undefined) throw new Error('it has a part')
  expect(chordFollowers(part, call, { results: [1, 2] }, 0)).toMatchObject([{ message: { id: 'z', args: [[1, 2]] } }])
  const error = { type: 'ChordError', module: 'm', args: [] }
  expect(chordFollowers(part, call, { error }, 0)).toMatchObject([{ message: { task: 'mourn', args: ['z'] } }])
})

it('an absorber tells the producer of a task that no worker has what to do, if it follows another one', () => {
  expect(refusedResult({ id: 'a', task: 'lost' }, unknownTask('lost'))).toMatchObject({
    value: { type: 'NotRegistered', args: ['lost'] },
    traceback: expect.stringContaining('`routes`'),
  })
})

const written = (kind: 'chain' | 'group', tasks: readonly unknown[], options = {}) => {
  return { task: `celery.${kind}`, args: [], kwargs: { tasks }, options, subtask_type: kind }
}
const canvas = (...given: Parameters<typeof written>) => readSignature(written(...given))
const named = (task: string, id: string) => signature(task, [], { options: { task_id: id } })

it('an absorber sends each task of a group that ends a chain, and fails all of them, and what follows in them, with the chain', () => {
  const told = signature('told')
  const first = signature('b', [], { options: { task_id: 'B', link: told } })
  const last = canvas('group', [first, canvas('chain', [named('c', 'C'), named('d', 'D')])], {
    task_id: 'g',
    priority: 3,
  })
  const call = callOf(message({ chain: [last] }), 'celery')
  const kept = JSON.parse(JSON.stringify(call)) as typeof call
  const done = resultOf('a', { state: 'done', reason: null, result: '1', error: null })
  expect(followersOf('a', kept, done, 0).map((one) => one.message)).toMatchObject([
    { task: 'b', id: 'B', args: [1], chain: [], callbacks: [told], priority: 3 },
    { task: 'c', id: 'C', args: [1], chain: [{ task: 'd', options: { task_id: 'D' } }] },
  ])
  expect(repliesOf(kept, resultOf('a', failed)).map(({ result }) => result.id)).toEqual(['a', 'B', 'C', 'D'])
})

it('an absorber takes a chain for its first task, with what is to be done after each step, and after the last', () => {
  const told = signature('told')
  const mourn = signature('mourn')
  const body = canvas('chain', [named('b', 'B'), named('c', 'C')], { link: [told], link_error: [mourn], queue: 'q' })
  const call = callOf(message({ chord: body, groupId: 'g', groupIndex: 0 }), 'celery')
  const done = resultOf('a', { state: 'done', reason: null, result: '1', error: null })
  const [part] = chordPartsOf(JSON.parse(JSON.stringify(call)) as typeof call, done)
  if (part === undefined) throw new Error('it has a part')
  const [next] = chordFollowers(part, call, { results: [1, 2] }, 0)
  expect(next).toMatchObject({
    message: { task: 'b', id: 'B', args: [[1, 2]], callbacks: [], errbacks: [{ task: 'mourn' }] },
    address: { routingKey: 'q' },
  })
  expect(next?.message.chain).toMatchObject([
    { task: 'c', options: { task_id: 'C', link: [{ task: 'told' }], link_error: [{ task: 'mourn' }] } },
  ])
  const error = { type: 'ChordError', module: 'm', args: [] }
  expect(chordFollowers(part, call, { error }, 0)).toMatchObject([{ message: { task: 'mourn', args: ['B'] } }])
})

it('an absorber sends a chain by the options of the whole, which go before those of its first task, as Celery does', () => {
  const first = signature('b', [], { options: { task_id: 'B', queue: 'own', countdown: 5 } })
  const second = signature('c', [], { options: { task_id: 'C', queue: 'own' } })
  const whole = canvas('chain', [first, second], { queue: 'q', priority: 3, chain: [named('d', 'D')] })
  expect(whole).toMatchObject({
    task: 'b',
    options: { task_id: 'B', queue: 'q', countdown: 5, priority: 3 },
  })
  const done = resultOf('a', { state: 'done', reason: null, result: '1', error: null })
  const [next] = followersOf('a', callOf(message({ callbacks: [whole] }), 'celery'), done, 0)
  expect(next?.message.chain).toMatchObject([
    { task: 'c', options: { queue: 'own' } },
    { task: 'd', options: { task_id: 'D' } },
  ])
})

it('an absorber gives no result to the first task of an immutable chain', () => {
  const tasks = [named('b', 'B'), named('c', 'C')]
  expect(
    readSignature({ task: 'celery.chain', kwargs: { tasks }, immutable: true, subtask_type: 'chain' }),
  ).toMatchObject({
    task: 'b',
    immutable: true,
    options: { chain: [{ task: 'c', immutable: false }] },
  })
})

/** A chord, as Python writes one. */
const chord = (id: string, members: readonly unknown[], body: unknown, more: object = {}) => {
  const header = { task: 'celery.group', kwargs: { tasks: members }, options: { task_id: id }, subtask_type: 'group' }
  return readSignature({
    task: 'celery.chord',
    kwargs: { kwargs: {}, header, body },
    options: { task_id: id },
    subtask_type: 'chord',
    ...more,
  })
}

it('an absorber begins a chord that follows: sends its members, and after them its last task with what follows the chord', () => {
  const [mourn, last] = [signature('mourn'), signature('d', [], { options: { task_id: 'D', link_error: [] } })]
  const members = [named('b', 'B'), written('chain', [named('c', 'C'), named('x', 'X')])]
  const follows = chord('g', members, last, { options: { task_id: 'g', link_error: [mourn], priority: 3 } })
  const call = callOf(message({ chain: [follows, named('e', 'E')] }), 'celery')
  const kept = JSON.parse(JSON.stringify(call)) as typeof call
  const done = resultOf('a', { state: 'done', reason: null, result: '1', error: null })
  const sent = followersOf('a', kept, done, 0)
  expect(sent.map(({ begins }) => begins)).toEqual([[{ groupId: 'g', size: 2 }], undefined])
  const body = { task: 'd', options: { task_id: 'D', chain: [{ task: 'e' }], link_error: [{ task: 'mourn' }] } }
  expect(sent.map((one) => one.message)).toMatchObject([
    { id: 'B', args: [1], groupId: 'g', groupIndex: 0, priority: 3, chord: body, chain: [] },
    { id: 'C', args: [1], groupId: undefined, chord: undefined, chain: [{ options: { group_id: 'g', chord: body } }] },
  ])
  expect(repliesOf(kept, resultOf('a', failed)).map(({ result }) => result.id)).toEqual(['a', 'B', 'C', 'X', 'D', 'E'])
  expect(chordPartsOf(kept, resultOf('a', failed))).toEqual([])
})

it('an absorber begins a chord as the last task of a chord, without its result if it takes none, or without members', () => {
  const inner = chord('h', [named('b', 'B')], named('c', 'C'), { immutable: true })
  const call = callOf(message({ chord: inner, groupId: 'g', groupIndex: 0 }), 'celery')
  const done = resultOf('a', { state: 'done', reason: null, result: '1', error: null })
  const [part] = chordPartsOf(call, done)
  if (part === undefined) throw new Error('it has a part')
  expect(chordFollowers(part, call, { results: [1] }, 0)).toMatchObject([
    { begins: [{ groupId: 'h', size: 1 }], message: { id: 'B', args: [], groupId: 'h', chord: { task: 'c' } } },
  ])
  const empty = callOf(message({ callbacks: [chord('i', [], named('c', 'C'))] }), 'celery')
  expect(followersOf('a', empty, done, 0)).toMatchObject([{ message: { id: 'C', args: [[]], chain: [] } }])
})

it('an absorber refuses what follows a group in a chain, an empty chain, and a chord of which a member ends in a group', () => {
  const group = canvas('group', [named('b', 'B')])
  const refused = /cannot be carried out: .*(follow a group|empty chain|no list|ends in a group|"chunks" follows)/
  expect(() => canvas('chain', [group, named('c', 'C')])).toThrow(refused)
  expect(() => canvas('chain', [])).toThrow(refused)
  expect(() =>
    readSignature({ task: 'celery.chord', subtask_type: 'chord', kwargs: { body: named('c', 'C') } }),
  ).toThrow(refused)
  expect(() => readSignature({ task: 'celery.chunks', subtask_type: 'chunks' })).toThrow(refused)
  for (const member of [group, written('chain', [named('b', 'B'), group]), chord('g', [], group)])
    expect(() => chord('h', [member], named('c', 'C'))).toThrow(refused)
})
