import { engineSchema, inSchema } from '../../src/db/migrate.ts'

/** The schema with this release's functions, for tests that call one by name. */
export const fn = engineSchema('sluice')

/** SQL as it runs in the schema that tests use. */
export const inOwn = (sql: string): string => inSchema(sql, 'sluice')
