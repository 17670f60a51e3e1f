/** What the command line adds to an error of PostgreSQL or Node. */
import { expect, it, vi } from 'vitest'
import { fail } from '../../src/cli/failure.ts'

it('an error names the next step where a disk is full or read-only, all connections are used up, or a right is missing', () => {
  const written = vi.spyOn(process.stderr, 'write').mockReturnValue(true)
  try {
    const full = Object.assign(new Error('could not extend file "base/5/1": No space left on device'), {
      code: '53100',
    })
    const busy = Object.assign(new Error('sorry, too many clients already'), { code: '53300' })
    const fixed = Object.assign(new Error("EROFS: read-only file system, open 'package.json'"), { code: 'EROFS' })
    const denied = Object.assign(new Error('permission denied for table gate'), { code: '42501' })
    expect([fail(full, false), fail(busy, false), fail(fixed, false), fail(denied, false)]).toEqual([1, 1, 1, 2])
    expect(written.mock.calls.map(([text]) => text)).toEqual([
      expect.stringMatching(/No space left on device; make room on the disk of the database; nothing .* is lost/),
      expect.stringMatching(
        /too many clients already; raise max_connections, use a pooler, or set `connections` lower/,
      ),
      expect.stringMatching(/'package.json'; run it in a directory that can be written to/),
      expect.stringMatching(
        /^error SLUICE_NO_PRIVILEGE: permission denied for table gate; run `(npx )?sluice migrate`/,
      ),
    ])
  } finally {
    written.mockRestore()
  }
})
