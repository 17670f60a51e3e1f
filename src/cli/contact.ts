/** The demo's input, checked without a schema library. */
import type { StandardSchemaV1 } from '@standard-schema/spec'

/** One row of the CSV. */
export interface Contact {
  accountId: string
  contactId: string
}

/** Accepts objects with two non-empty strings, `accountId` and `contactId`. */
export const contactSchema: StandardSchemaV1<Contact> = {
  '~standard': {
    version: 1,
    vendor: 'sluice',
    validate(value) {
      const row = value as Partial<Contact> | null
      const ok = [row?.accountId, row?.contactId].every((text) => typeof text === 'string' && text !== '')
      return ok ? { value: value as Contact } : { issues: [{ message: 'each row needs accountId and contactId' }] }
    },
  },
}
