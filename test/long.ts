/**
 * `npm run chaos` runs the tests of fleets, crashes and contention in their long form: more of everything, and with what
 * only a machine that does nothing else can show (seconds, rates within percents). Every other run takes the short one.
 */
export const isLong = process.env['SLUICE_TEST_LONG'] === '1'
