/** Whether a worker reports its calls where a dispatcher reads, by what it answers, without any of them. */
import { expect, it } from 'vitest'
import { reportingIn, seemsOtherBackend } from '../../src/remote/reporting.ts'

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
])('a report of a task of which %s shows what is missing, if anything is', (_what, attributes, backend, fault) => {
  const { tasks, faults } = reportingIn([`add [${attributes}]`], backend)
  expect(faults.get('add')).toBe(fault)
  expect(tasks.has('add')).toBe(fault === undefined)
})

const django = 'CELERY_RESULT_BACKEND'

it.each([
  [{ result_backend: 'redis://127.0.0.1:6379/0' }, `${at}/0`, false],
  [{ result_backend: 'redis://127.0.0.1:6379' }, at, false],
  [{ result_backend: 'redis://:**@cache:6379/3' }, `${at}/3`, false],
  [{ result_backend: 'redis://127.0.0.1:6379//1' }, `${at}/1`, false],
  [{ result_backend: 'redis://127.0.0.1:6379/1?db=4' }, `${at}/4`, false],
  [{ result_backend: 'redis://127.0.0.1:6379/1' }, `${at}/0`, true],
  [{ result_backend: 'redis://127.0.0.1:6379//1' }, `${at}/0`, true],
  [{ result_backend: 'redis://127.0.0.1:6379' }, `${at}/2`, true],
  [{ [django]: 'redis://127.0.0.1:6379/1' }, `${at}/1`, false],
  [{ [django]: 'redis://127.0.0.1:6379/1' }, `${at}/0`, true],
  [{ [django]: at, [`${django}_TRANSPORT_OPTIONS`]: { global_keyprefix: '********' } }, at, true],
  [{ result_backend: at, result_backend_transport_options: { global_keyprefix: 'shop' } }, at, true],
  [{ result_backend: 'sentinel://cache:26379' }, `${at}/1`, false],
  [{}, `${at}/1`, false],
  [undefined, `${at}/1`, false],
  [{ result_backend: 'redis://127.0.0.1:6379/1' }, 'rpc://', false],
])('with the settings %j, a worker seems to report elsewhere than %s: %s', (conf, backend, isElsewhere) => {
  expect(seemsOtherBackend(conf, backend)).toBe(isElsewhere)
})
