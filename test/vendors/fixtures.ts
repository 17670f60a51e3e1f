import { business } from './fixtures/business.ts'
import { developers } from './fixtures/developers.ts'
import { general } from './fixtures/general.ts'

/** One for each kind of answer that is read. */
export const fixtures = [...general, ...developers, ...business]
