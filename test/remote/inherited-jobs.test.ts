/** What a dispatcher goes on with of another one, without any of them. */
import { expect, it } from 'vitest'
import { silent as log } from '../../src/core/log.ts'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import type { Estate, JobKey, Reports } from '../../src/claim/outlet.ts'
import { InheritedJobs } from '../../src/remote/inherited-jobs.ts'
import { kinOf } from '../../src/remote/open.ts'
import type { Sent } from '../../src/remote/sent.ts'
import { task } from '../../src/tasks/task.ts'
import { World } from '../outlet/simulated-world.ts'

const job = (seq: number, name: string) => ({ id: `j${seq}`, claim: 'c', seq, task: name }) as ClaimedJob

/** Estates of a dispatcher that has the task `far`, and another outlet for `near`. */
function stage(adopt = async (_name: string, _onGap?: () => void): Promise<void> => {}) {
  const at = {
    taken: [] as Sent[],
    inherited: [] as string[],
    left: [] as JobKey[][],
    known: [] as string[],
    adopted: 0,
    closed: 0,
  }
  const estates = new InheritedJobs({
    results: {
      async adopt(name, onGap) {
        at.adopted++
        await adopt(name, onGap)
        return async () => void at.closed++
      },
    },
    workers: { mayHaveLost: () => false },
    clock: new World().clock(0, 1),
    log,
    tasks: new Map([['far', task('far', { run: () => undefined })]]),
    others: new Set(['near']),
    take: (sent) => void at.taken.push(sent),
  })
  const reports = {
    inherited: ({ id }: ClaimedJob) => void at.inherited.push(id),
    async left(_name: string, begun: readonly JobKey[], known: readonly string[]) {
      at.left.push([...begun])
      at.known.push(...known)
    },
  } as unknown as Reports
  const inherit = (jobs: ClaimedJob[], begun: ClaimedJob[] = []) =>
    estates.inherit({ name: 'gone', from: '7', jobs, begun: new Set(begun) } satisfies Estate, reports)
  return { at, inherit, ended: (sent: Sent) => estates.recordEnd(sent, reports) }
}

it('a dispatcher takes its own tasks over, and lets the rest go back uncalled when the last of them has ended', async () => {
  const { at, inherit, ended } = stage()
  const [one, two, near] = [job(1, 'far'), job(2, 'far'), job(3, 'near')]
  inherit([one, two, near], [two])
  expect(at.inherited).toEqual(['j1', 'j2'])
  expect(at.taken.map(({ begunMs }) => begunMs !== undefined)).toEqual([false, true])
  ended(at.taken[0] as Sent)
  expect(at.left).toEqual([])
  ended(at.taken[1] as Sent)
  // A dispatcher with jobs of another claim lives.
  expect(at.known).toEqual(['c', 'c', 'c'])
  // Their ends are not recorded yet: these two must not go back.
  expect(at.left).toEqual([
    [
      { claim: 'c', seq: 1 },
      { claim: 'c', seq: 2 },
    ],
  ])
  await Promise.resolve()
  await expect.poll(() => at.closed).toBe(1)
})

it('a dispatcher lets nothing go back of a dispatcher that had a task which is not known here', () => {
  const { at, inherit, ended } = stage()
  inherit([job(1, 'far'), job(2, 'strange')])
  ended(at.taken[0] as Sent)
  expect(at.left).toEqual([])
})

it('a dispatcher does not know what became of jobs of which reports may be lost unread', async () => {
  let lose = () => {}
  const read = stage(async (_name, onGap) => void (lose = onGap ?? lose))
  const unread = stage(async () => {
    throw new Error('refused')
  })
  for (const { inherit } of [read, unread]) inherit([job(1, 'far')])
  const isDoubtful = ({ at }: typeof read) => at.taken.every((sent) => sent.isDoubtful)
  await expect.poll(() => isDoubtful(unread)).toBe(true)
  expect(isDoubtful(read)).toBe(false)
  lose()
  expect(isDoubtful(read)).toBe(true)
})

it('a dispatcher takes nothing over twice, and nothing if it has none of the tasks', () => {
  const { at, inherit } = stage()
  inherit([job(1, 'near')])
  expect(at.adopted).toBe(0)
  inherit([job(2, 'far')])
  inherit([job(2, 'far')])
  expect(at.inherited).toEqual(['j2'])
})

it('a dispatcher is taken over only by one that reads results in the same database, whatever the name of its server', () => {
  const kin = (backend: string) => kinOf(backend, 'broker')
  expect(kin('redis://127.0.0.1/1')).toBe(kin('redis://localhost:6379/1'))
  expect(new Set(['rpc://', 'redis://localhost/0', 'redis://localhost/1'].map(kin)).size).toBe(3)
})
