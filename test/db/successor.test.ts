import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { connectInfo } from '../../src/db/owner.ts'
import { Successor } from '../../src/db/successor.ts'

let dir: string
beforeEach(() => void (dir = fs.mkdtempSync(path.join(os.tmpdir(), 'sluice-successor-'))))
afterEach(() => fs.rmSync(dir, { recursive: true, force: true }))

test('connections that are lost at once open the engine once, and a process that closes meanwhile releases the directory', async () => {
  const log = vi.fn<(message: string) => void>()
  const successor = new Successor(dir, systemClock, log)
  const opening = [successor.takeOver(), successor.takeOver(), successor.takeOver()]
  await successor.close()
  expect(await Promise.all(opening)).toEqual([true, true, true])
  expect(log).toHaveBeenCalledExactlyOnceWith(expect.stringContaining('this process owns it now'))
  expect(await connectInfo(dir)).toBeUndefined()
})

test('a process that has closed does not become the owner of a directory', async () => {
  const successor = new Successor(dir, systemClock, () => {})
  await successor.close()
  expect(await successor.takeOver()).toBe(false)
  expect(successor.isOwner).toBe(false)
  expect(await connectInfo(dir)).toBeUndefined()
})
