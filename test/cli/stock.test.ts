import { expect, it } from 'vitest'
import { declaredIn, judged, lacksIn, poolsIn, sharedIn } from '../../src/cli/stock.ts'
import { placesOf } from '../../src/tasks/remote.ts'

const worker = (slots: number, prefetch: number) => ({
  pid: 1,
  pool: { 'max-concurrency': slots },
  prefetch_count: prefetch,
})
const serves = (...names: string[]) => names.map((name) => ({ name }))

it('`doctor` compares the pools of Celery workers with the slots that tasks declare', () => {
  const stats = { a: worker(4, 4), b: worker(4, 4), c: worker(2, 8), d: { error: 'no' } }
  const pools = poolsIn(stats, { a: serves('sync'), b: serves('sync', 'mail'), c: serves('slow') })
  const of = (queue: string, slots: number) => judged([{ queue, slots }], pools)
  expect(of('sync', 8)).toEqual({ status: 'ok', text: 'queue "sync": 2 Celery workers with 8 slots' })
  expect(of('mail', 8)).toEqual({
    status: 'warn',
    text: 'queue "mail": 1 Celery worker with 4 slots, but its tasks declare 8: the smaller number counts; correct `slots`',
  })
  expect(of('slow', 2)).toEqual({
    status: 'warn',
    text: 'queue "slow": 1 Celery worker with 2 slots, and 8 messages taken at once: jobs wait in full workers; set worker_prefetch_multiplier = 1',
  })
  expect(of('none', 1)).toEqual({ status: 'warn', text: 'queue "none" has no Celery worker that answers' })
})

it('`doctor` names a queue as its workers do, whatever the name of the limit that counts its slots', () => {
  const slots = { concurrency: 4 }
  const limits = [
    { name: 'crm', numbers: slots },
    ...['sync', 'Shop:Mail', 'gone'].map((queue) => ({ name: placesOf(queue), numbers: slots })),
  ]
  const tasks = ['sync', 'sync', 'Shop:Mail', 'default', null].map((queue) => ({ queue }))
  expect(declaredIn(limits as never, tasks)).toEqual([
    { queue: 'sync', slots: 4 },
    { queue: 'Shop:Mail', slots: 4 },
  ])
})

it('`doctor` names the setting without which a Celery worker gets no jobs of a task', () => {
  const known = { queue: 'sync', currently: null, remote: true, workers: [{}], waits: false }
  const tasks = [
    { ...known, name: 'shop.sync' },
    { ...known, name: 'shop.mail', workers: null, waits: true },
    { ...known, name: 'here', remote: null },
    // Of earlier code.
    { ...known, name: 'shop.removed', workers: null },
    { ...known, name: 'shop.renamed', currently: 'shop.sync', waits: true },
  ]
  const info = (name: string, tracked: boolean) => `${name} [track_started=${tracked ? 'True' : 'False'}]`
  const queues = { a: serves('sync'), b: serves('other') }
  const of = (...registered: string[]) => {
    const lacks = lacksIn(tasks, { a: registered, b: [], c: { error: 'no' } }, queues, 'rpc://')
    return judged([{ queue: 'sync', slots: 4 }], poolsIn({ a: worker(4, 4) }, queues), { lacks })
  }
  expect(of(info('shop.sync', true), info('shop.mail', true)).status).toBe('ok')
  expect(of(info('shop.sync', false), info('shop.mail', true))).toEqual({
    status: 'warn',
    text: 'queue "sync" gets no jobs of shop.sync, because a does not report its calls: set task_track_started = True',
  })
  expect(of(info('shop.sync', true)).text).toBe('queue "sync" gets no jobs of shop.mail, because a lacks the task')
})

it('`doctor` names workers that share a name', () => {
  const answers = [1, 2].map((pid) => ({ twin: { ...worker(4, 4), pid }, one: worker(4, 4), mute: { error: 'no' } }))
  expect(sharedIn(answers)).toEqual(['twin'])
  const found = judged([], new Map(), { shared: sharedIn(answers) })
  expect(found).toMatchObject({
    status: 'warn',
    text: expect.stringContaining('several Celery workers have the name twin'),
  })
})
