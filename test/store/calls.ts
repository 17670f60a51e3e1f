import { vi } from 'vitest'
import type { Db } from '../../src/db/db.ts'

/** How often the engine calls a function of the store during an act. */
export async function calls(db: Db, name: string, act: () => Promise<unknown>): Promise<number> {
  const spy = vi.spyOn(db, 'call')
  try {
    await act()
    return spy.mock.calls.filter(([called]) => called === name).length
  } finally {
    spy.mockRestore()
  }
}
