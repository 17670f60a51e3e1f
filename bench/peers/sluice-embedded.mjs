// Sluice on its embedded engine (PGlite) in a directory, with durable commits.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import sluice, { open } from './sluice.mjs'

export default {
  ...sluice,
  name: 'sluice-embedded',
  packages: ['sluice', '@electric-sql/pglite'],
  server: undefined,
  jobsMax: 20_000,
  slow: true,
  settings: (shape) => `${sluice.settings(shape)}, PGlite directory, fsync on commit`,
  /** Uses `place.dir`, which stays, else a temporary directory. */
  async open(place, shape) {
    const dir = place.dir ?? mkdtempSync(join(tmpdir(), 'sluice-bench-'))
    const session = await open({ url: join(dir, 'data') }, shape)
    return {
      ...session,
      close: async () => {
        await session.close()
        if (place.dir === undefined) rmSync(dir, { recursive: true, force: true })
      },
    }
  },
}
