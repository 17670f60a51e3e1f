/** Which jobs of silent dispatchers a dispatcher finds, while the store comes and goes. */
import { expect, it } from 'vitest'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import { StoreError } from '../../src/core/errors.ts'
import type { Store } from '../../src/db/store.ts'
import { Claims } from '../../src/claim/claim.ts'
import { storeOn } from '../../src/db/store.ts'
import { Estates } from '../../src/fleet/estates.ts'
import { Sluice } from '../../src/sluice.ts'
import { claim, enter, quietTask } from '../claim/engine.ts'
import { freshDatabase } from '../servers/database.ts'
import { suspect } from './engine.ts'

it('an estate whose jobs could not be read is found again, and once', async () => {
  const left = [
    { worker: '7', claim: 'a', begun: ['2'], name: 'gone' },
    { worker: '7', claim: 'b', begun: [], name: 'gone' },
  ]
  const store = {
    run: async (_file: string, [, , known]: [string, string, string[]]) =>
      left.filter((one) => !known.includes(one.claim)),
  }
  let isAway = true
  const adopt = async (claim: string) => {
    if (isAway && claim === 'b') throw new StoreError('SLUICE_STORE_UNREACHABLE', 'away')
    return (claim === 'a' ? [{ seq: 1 }, { seq: 2 }] : [{ seq: 3 }]) as ClaimedJob[]
  }
  const estates = new Estates(store as unknown as Store, { adopt })
  await expect(estates.find('1', 'kin')).rejects.toThrow('away')
  isAway = false
  const [estate, ...others] = await estates.find('1', 'kin')
  expect(others).toEqual([])
  expect(estate?.jobs.map(({ seq }) => seq)).toEqual([1, 2, 3])
  expect([...(estate?.begun ?? [])].map(({ seq }) => seq)).toEqual([2])
  expect(await estates.find('1', 'kin')).toEqual([])
})

it('a dispatcher that was only silent, and lives on, leaves its later jobs to the same one', async (context) => {
  const sluice = await Sluice.open({ store: (await freshDatabase()).url })
  context.onTestFinished(() => sluice.close())
  const { db } = sluice
  const store = storeOn(db)
  const estates = new Estates(store, new Claims(store))
  await sluice.sendMany(quietTask('quiet'), [{}, {}])
  const id = await enter(db, ['quiet'])
  await db.query(`update sluice.worker set stints = '{kin.silent}' where id = $1`, [id])
  const taken = async () => (await estates.find('0', 'kin.')).map(({ from, jobs }) => [from, jobs.length])
  for (let n = 0; n < 2; n++) {
    await claim(db, id, ['quiet'], 1)
    await suspect(db, [id], 5)
    expect(await taken()).toEqual([[id, 1]])
    await suspect(db, [id], 5)
    expect(await taken()).toEqual([])
  }
})
