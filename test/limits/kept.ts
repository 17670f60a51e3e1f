/** A bucket as a random history remembers it: its state, and all of its grants, which must keep every bound. */
import { randomUUID } from 'node:crypto'
import { expect } from 'vitest'
import type { Bucket } from '../../src/limits/decide.ts'
import type { Entry } from './specification.ts'
import { type Rule, withPaces } from '../../src/limits/rule.ts'
import { bound, type Grant, type Known, worst, worstPeriod } from './oracle.ts'

/** A grant as the model remembers it: its id (empty: usage beyond a grant), and the version of the limit that decided it. */
export interface Named extends Known {
  id: string
  /** When each of its units may be used; undefined: all at its time. */
  instantsUs?: readonly number[]
  version: number
}

/** A bucket. */
export interface Kept {
  id: string
  /** For how many units its hint is computed. */
  need: number
  limit: number
  /** The rules under which `state` was last written, and all rules in force since. */
  defined: (readonly Rule[])[]
  state: Bucket | undefined
  history: Named[]
  /** How many of `history` were granted before the limit was last defined. */
  old: number
  /** How many of `history` are no longer in the ledger. */
  gone: number
  /** The newest row of the ledger is the newest grant. */
  isGrant: boolean
}

/** The id of a grant in the store; an unused id when there is none. */
export function claimOf(known: Named | undefined): string {
  return known === undefined || known.id === '' ? randomUUID() : known.id
}

/** The grants of a bucket less their refunds, in order. */
export function keptOf(one: Kept): Entry[] {
  return one.history.slice(one.gone).map(({ atUs, units, refunded }) => ({ atUs, units: units - refunded }))
}

/**
 * Checks every window and period of a bucket against the bound of every rule. @param cut which units of a grant ahead count as those
 * that were given back
 */
export function checkBounds(one: Kept, rules: readonly Rule[], cut: 'first' | 'last'): void {
  const used = ({ id, atUs, units, refunded, instantsUs }: Named): Grant[] => {
    // Usage beyond a grant is in no bound, but leaves less room for grants.
    if (id === '') return []
    const left = cut === 'first' ? instantsUs?.slice(refunded) : instantsUs?.slice(0, units - refunded)
    return left?.map((us): Grant => [us, 1]) ?? [[atUs, units - refunded]]
  }
  const kept = one.history.flatMap(used)
  const old = one.history.slice(0, one.old).flatMap(used).length
  for (const { rule, pace } of withPaces(rules)) {
    if (rule.kind === 'concurrency') continue
    expect(worstPeriod(kept, rule, old)).toBeLessThanOrEqual(rule.capacity)
    // Also those that began under the definition before.
    if (rule.kind !== 'quota')
      expect(worst(kept, rule.windowUs, 'half-open', old)).toBeLessThanOrEqual(bound(rule, rule.windowUs, pace))
    const spanUs = 3 * rule.windowUs
    expect(worst(kept.slice(old), spanUs)).toBeLessThanOrEqual(bound(rule, spanUs, pace))
  }
}
