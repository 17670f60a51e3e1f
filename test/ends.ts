/** What is to be cleaned up when a test file has ended, after its own hooks. */
import { afterAll } from 'vitest'

type CleanUp = () => Promise<unknown>

/** Files that share a process share this module, but not what they leave. */
const left: CleanUp[] = []

/** Calls it when the present test file has ended. What it rejects with is of no interest. */
export function atEnd(cleanUp: CleanUp): void {
  left.push(cleanUp)
}

/** Registers the clean-up of one test file; the set-up of each file calls it. */
export function cleanUpAtEnd(): void {
  afterAll(async () => {
    for (const cleanUp of left.splice(0).reverse()) await cleanUp().catch(() => {})
  })
}
