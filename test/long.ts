/**
 * `npm run chaos` runs the tests of fleets, crashes and contention in their long form: more of everything, and with checks
 * that need a machine that does nothing else (seconds, rates within percents). Every other run takes the short form.
 */
export const isLong = process.env['SLUICE_TEST_LONG'] === '1'

/** How many random cases a property is tried with: so many in the long form, else an eighth, since each run draws others. */
export const cases = (most: number): number => (isLong ? most : Math.ceil(most / 8))
