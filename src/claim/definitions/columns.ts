/** A definition of a limit in the form that the store keeps. */
import type { Limit } from '../../limits/limit.ts'

/** The columns of a limit that its numbers decide. */
export type Numbers = Pick<Limit, 'rules' | 'grantUs' | 'transitUs' | 'classic' | 'numbers'>

/** Returns those fields of a stored definition that an operator's numbers decide. */
export function numbersOnly({ rules, grantUs, transitUs, classic, numbers }: Numbers): object {
  return { rules, grantUs, transitUs, classic, numbers }
}

/** Returns the arrays that the store computes with, one element for each rule. */
export function columnsOf({ rules, grantUs }: Numbers, lendUs?: number): object {
  const column = (field: 'kind' | 'drain' | 'weight' | 'capacity' | 'partUs' | 'spanUs') =>
    rules.map((rule) => rule[field])
  return {
    kind: column('kind'),
    drain: column('drain'),
    weight: column('weight'),
    capacity: column('capacity'),
    part_us: column('partUs'),
    span: column('spanUs'),
    margin: rules.some(({ kind }) => kind === 'quota') ? rules.map(({ quota }) => quota?.marginUs ?? 0) : null,
    grant_us: grantUs,
    ...(lendUs === undefined ? {} : { lend_us: lendUs }),
  }
}
