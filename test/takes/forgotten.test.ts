/** A refund of what the ledger does not know any more, or of a parked bucket, gives nothing back. */
import { beforeEach, describe, expect, it } from 'vitest'
import { defineLimit } from '../../src/claim/definitions/define.ts'
import { hash64, newId } from '../../src/core/hash.ts'
import { sqlOn } from '../../src/db/store.ts'
import { limit } from '../../src/limits/limit.ts'
import { emptied, mainEngines } from '../claim/engine.ts'
import { limiterNowUs, refund, stopGrantsAhead } from '../limits/engine.ts'
import { acquire, expireHolders, takersInLine } from './engine.ts'

describe.each(mainEngines)('a refund, on $name', (engine) => {
  const at = emptied(engine)
  const bucket = hash64('refunded')
  let grant: string
  beforeEach(async () => {
    await defineLimit(sqlOn(at.db), limit('refunded', { rate: '60/h', burst: 60 }))
    grant = newId()
    await acquire(at.db, 'refunded', { grant, cost: 20 })
    await acquire(at.db, 'refunded', { cost: 30 })
  })
  const rows = async () => {
    const found = await at.db.query<{ units: string }>('select units from sluice.ledger where bucket = $1 order by n', [
      bucket,
    ])
    return found.map(({ units }) => Number(units))
  }

  it('gives back what the ledger knows', async () => {
    await refund(at.db, 'refunded', grant, 20)
    await refund(at.db, 'refunded', grant, 20)
    expect(await rows()).toEqual([20, 30, -20])
  })

  it('gives nothing back of a grant whose row is deleted', async () => {
    await at.db.query('delete from sluice.ledger where claim = $1', [grant])
    await refund(at.db, 'refunded', grant, 20)
    expect(await rows()).toEqual([30])
  })

  it('gives nothing back to a parked bucket', async () => {
    await at.db.query(`update sluice.bucket set parked = true where id = $1`, [bucket])
    await refund(at.db, 'refunded', grant, 20)
    expect(await rows()).toEqual([20, 30])
  })
})

describe.each(mainEngines)('on $name', (engine) => {
  const at = emptied(engine)

  it('what stands for denied takes of a bucket is deleted when it is over, and that of other buckets stays', async () => {
    await stopGrantsAhead(at.db, [1, 2], 1)
    await stopGrantsAhead(at.db, [2], (await limiterNowUs(at.db)) + 60_000_000)
    await expireHolders(at.db)
    expect([await takersInLine(at.db), await takersInLine(at.db, 2)]).toEqual([1, 1])
  })
})
