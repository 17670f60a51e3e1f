/** For tests of code that uses Sluice: a store in memory, a clock of your own, a stand-in vendor. */
export { prove } from './proof.ts'
export { vendor } from './vendor.ts'
