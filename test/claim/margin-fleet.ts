/** Processes that measure the margin of one limit, on a clock that the test moves. */
import { systemClock } from '../../src/core/clock.ts'
import { Definitions } from '../../src/claim/definitions/define.ts'
import { Margins } from '../../src/claim/definitions/margins.ts'
import { sqlOn, storeOn } from '../../src/db/store.ts'
import { limit, type LimitOptions } from '../../src/limits/limit.ts'
import type { ChargeAgain } from '../../src/limits/samples.ts'
import type { Sluice } from '../../src/sluice.ts'

let made = 0

/** A limit, processes that call under it, and a clock for their samples. */
export async function fleetOn(sluice: Sluice, options: LimitOptions = { rate: '200/s' }) {
  const of = limit(`m${++made}`, options)
  let nowMs = 0
  const clock = { ...systemClock, monotonicMs: () => nowMs }
  const store = storeOn(sluice.db, { clock })
  await new Definitions(sqlOn(sluice.db), clock).define([of])
  const all: Margins[] = []
  const join = async () => {
    const one = new Margins(store)
    await one.join([of])
    all.push(one)
    return one
  }
  /** Passes so many seconds, in which each process answers some requests within these times, and reports. */
  const pass = async (seconds: number, tookMs = [2, 4], who: readonly Margins[] = all, charge?: ChargeAgain) => {
    for (let at = 0; at < seconds; at += 10) {
      nowMs += 10_000
      for (const one of who)
        for (let i = 0; i < 60; i++) {
          one.recordAge([of], 5, false)
          one.recordAnswer([of], tookMs[i % tookMs.length] ?? 0, charge)
        }
      for (const one of who) await one.renew()
    }
  }
  const inForce = async (name = of.name) => {
    const [row] = await sluice.db.query<{ grant: number; way: number }>(
      `select (spec ->> 'grantUs')::int / 1000 as grant, (spec ->> 'transitUs')::int / 1000 as way
       from sluice.limit_def where name = $1 order by version desc limit 1`,
      [name],
    )
    return [row?.grant, row?.way]
  }
  return { of, store, join, pass, inForce }
}

/** The stated life and way, in ms, and the least. */
export const wide = [100, 100]
export const narrow = [10, 5]
