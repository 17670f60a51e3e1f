/** The Sluice that `task.send` uses unless another one is given: opened from the environment, at its first use. */
import { Sluice } from './sluice.ts'
import { provideSender } from './tasks/task.ts'

let shared: Promise<Sluice> | undefined

/** Opens the Sluice that `task.send` uses by default, at first use, from the environment. */
function sharedSluice(): Promise<Sluice> {
  shared ??= Sluice.open().catch((error: unknown) => {
    shared = undefined
    throw error
  })
  return shared
}

/** Makes `task.send` go to this Sluice from now on; undefined: to one opened from the environment at first use. */
export function useSluice(sluice: Sluice | undefined): void {
  provideSender(sluice === undefined ? sharedSluice : () => sluice)
}

provideSender(sharedSluice)
