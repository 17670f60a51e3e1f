/** What the command line adds to an error of PostgreSQL. */
import { expect, it, vi } from 'vitest'
import { fail } from '../../src/cli/failure.ts'

it('names the next step where the disk of the database is full, or its connections are used up', () => {
  const written = vi.spyOn(process.stderr, 'write').mockReturnValue(true)
  try {
    const full = Object.assign(new Error('could not extend file "base/5/1": No space left on device'), {
      code: '53100',
    })
    const busy = Object.assign(new Error('sorry, too many clients already'), { code: '53300' })
    expect([fail(full, false), fail(busy, false)]).toEqual([1, 1])
    expect(written.mock.calls.map(([text]) => text)).toEqual([
      expect.stringMatching(/No space left on device; make room on the disk of the database; nothing .* is lost/),
      expect.stringMatching(
        /too many clients already; raise max_connections, use a pooler, or set `connections` lower/,
      ),
    ])
  } finally {
    written.mockRestore()
  }
})
