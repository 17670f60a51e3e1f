import { engineSchema } from '../../src/db/store.ts'

/** The schema with this release's functions, for tests that call one by name. */
export const fn = engineSchema('sluice')
