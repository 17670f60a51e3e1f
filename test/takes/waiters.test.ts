/** Which waiting take of a process is woken when units are given back. */
import { expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import type { Db } from '../../src/db/db.ts'
import { Waiters } from '../../src/takes/waiters.ts'

const hour = 3_600_000

it('the take that was woken wakes the next one when it has its grant, also if others have begun to wait meanwhile', async () => {
  let notify = (_bucket: string) => {}
  const listen: Db['listen'] = async (_channel, onNotice) => {
    notify = onNotice
    return async () => {}
  }
  const waiters = new Waiters({ listen } as Db, 'take', systemClock)
  const woken: string[] = []
  const waits = (who: string) =>
    void waiters.wait({ who, buckets: ['b'], sentMs: Infinity }, hour).then(() => woken.push(who))
  const turn = () => new Promise((resolve) => setImmediate(resolve))
  waits('first')
  waits('second')
  notify('b')
  // Two places were given back; both notifications reach the first.
  notify('b')
  await turn()
  expect(woken).toEqual(['first'])
  waits('third')
  waiters.next(['b'])
  await turn()
  expect(woken).toEqual(['first', 'second'])
  // It is denied, and waits again: nobody is woken for the grant of another take.
  waits('second')
  waiters.next(['b'])
  await turn()
  expect(woken).toEqual(['first', 'second'])
  await waiters.close()
})
