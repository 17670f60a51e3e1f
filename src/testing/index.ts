/** For tests of code that uses Sluice: a store in memory with a clock of your own, and a vendor that counts. */
export { type TestOptions, testSluice, type TestSluice } from './kit.ts'
export { type Arrival, type Claim, type Proof, prove } from './proof.ts'
export { type Report, vendor, type Vendor, type VendorOptions, type VendorRule } from './vendor.ts'
