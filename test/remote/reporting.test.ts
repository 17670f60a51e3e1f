/** Whether a worker reports its calls where a dispatcher reads, by what it answers, without any of them. */
import { expect, it } from 'vitest'
import { reportingIn } from '../../src/remote/reporting.ts'

const rpc = 'backend=<celery.backends.rpc.RPCBackend object at 0x7f>'
const redis = 'backend=<celery.backends.redis.RedisBackend object at 0x7f>'
const none = 'backend=<celery.backends.base.DisabledBackend object at 0x7f>'
const own = 'backend=<shop.results.Backend object at 0x7f>'
const at = 'redis://localhost:6379'

it.each([
  ['all is set', `track_started=True ignore_result=False ${rpc}`, 'rpc://', undefined],
  ['starts are not reported', `track_started=False ignore_result=False ${rpc}`, 'rpc://', 'task_track_started = True'],
  ['nothing is said about starts', rpc, 'rpc://', 'task_track_started = True'],
  ['results are ignored', `track_started=True ignore_result=True ${rpc}`, 'rpc://', 'task_ignore_result = False'],
  ['there is no backend', `track_started=True ignore_result=False ${none}`, 'rpc://', "result_backend = 'rpc://'"],
  ['results are in Redis', `track_started=True ${redis}`, 'rpc://', "result_backend = 'rpc://'"],
  ['results go over rpc', `track_started=True ${rpc}`, `${at}/0`, "result_backend = 'redis://…'"],
  ['results are in Redis, as wanted', `track_started=True ${redis}`, `${at}/0`, undefined],
  ['the backend is not one of Celery', `track_started=True ${own}`, 'rpc://', undefined],
])('of a task of which %s', (_what, attributes, backend, fault) => {
  const { tasks, faults } = reportingIn([`add [${attributes}]`], {}, backend)
  expect(faults.get('add')).toBe(fault)
  expect(tasks.has('add')).toBe(fault === undefined)
})

it.each([
  ['redis://127.0.0.1:6379/0', undefined, `${at}/0`, true],
  ['redis://127.0.0.1:6379', undefined, at, true],
  ['redis://:**@cache:6379/3', undefined, `${at}/3`, true],
  ['redis://127.0.0.1:6379/1', undefined, `${at}/0`, false],
  ['redis://127.0.0.1:6379', undefined, `${at}/2`, false],
  ['redis://127.0.0.1:6379/0', { global_keyprefix: 'shop' }, `${at}/0`, false],
  ['redis://127.0.0.1:6379/1', undefined, 'rpc://', true],
])('with results in %s and the options %j, read in %s: %s', (theirs, options, backend, isThere) => {
  const conf = { result_backend: theirs, result_backend_transport_options: options }
  expect(reportingIn(['add [track_started=True]'], conf, backend).tasks.has('add')).toBe(isThere)
})
