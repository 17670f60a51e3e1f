/** A Sluice for the tests of one file. */
import { Sluice, type SluiceOptions } from '../../src/index.ts'
import { atEnd } from '../ends.ts'
import { freshDatabase } from './database.ts'

/** Opens a Sluice on a database of its own, which is closed with the file. */
export async function freshSluice(options: Omit<SluiceOptions, 'store'> = {}): Promise<Sluice> {
  const sluice = await Sluice.open({ ...options, store: (await freshDatabase()).url })
  atEnd(() => sluice.close())
  return sluice
}
