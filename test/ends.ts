/** What is to be cleaned up when a test, or a test file, has ended, after its own hooks. */
import { afterAll, afterEach } from 'vitest'

type CleanUp = () => Promise<unknown>

/** Files that share a process share this module, but not what they leave. */
const left: CleanUp[] = []

const each = new Set<CleanUp>()

/**
 * Calls it after each test from now on, in this file and in those that share the process. For modules that several files use:
 * they are loaded once, so a hook of theirs would be one of the first file only.
 */
export function afterEachTest(cleanUp: CleanUp): void {
  each.add(cleanUp)
}

/** Calls it when the present test file has ended. What it rejects with is of no interest. */
export function atEnd(cleanUp: CleanUp): void {
  left.push(cleanUp)
}

/** Registers the clean-up of one test file and its tests; the set-up of each file calls it. */
export function cleanUpAtEnd(): void {
  afterEach(async () => {
    for (const cleanUp of each) await cleanUp()
  })
  afterAll(async () => {
    for (const cleanUp of left.splice(0)) await cleanUp().catch(() => {})
  })
}
