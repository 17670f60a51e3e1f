/** For tests of code that uses Sluice: a store in memory whose clock the test sets, and a stand-in for a vendor that counts. */
export { type TestOptions, testSluice, type TestSluice } from './kit.ts'
export type { DeliverOptions } from './events.ts'
export type { Limited, Refused } from './reports.ts'
export { type Arrival, type Claim, type Proof, prove } from './proof.ts'
export { type Report, vendor, type Vendor, type VendorOptions, type VendorRule } from './vendor.ts'
