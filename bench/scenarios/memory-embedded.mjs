// Memory of a process with the embedded engine: of the one that creates the directory, and of one that opens it again.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { residentMb } from '../cpu.mjs'
import { startFleet } from '../fleet.mjs'

export default {
  name: 'memory-embedded',
  about: 'resident memory of a process with the embedded engine: fresh, reopened, and after some jobs',
  peers: ['sluice-embedded'],
  full: { jobs: 5_000 },
  quick: { jobs: 500 },
  shape: () => ({ kind: 'throughput' }),
  async run({ peer, options: { jobs } }) {
    const dir = mkdtempSync(join(tmpdir(), 'sluice-bench-'))
    const opened = async (count) => {
      const fleet = await startFleet({ peer, place: { dir }, shape: { kind: 'throughput', fill: count }, count: 1 })
      const mb = residentMb(fleet.pids[0])
      if (count === 0) return [fleet, mb]
      await fleet.go()
      await fleet.until(count, 300)
      return [fleet, residentMb(fleet.pids[0])]
    }
    try {
      const values = []
      for (const count of [0, 0, jobs]) {
        const [fleet, mb] = await opened(count)
        values.push(mb)
        await fleet.stop()
      }
      const [fresh, reopened, used] = values
      return [
        { bench: 'memory-embedded-fresh', value: fresh, unit: 'MB' },
        { bench: 'memory-embedded-reopened', value: reopened, unit: 'MB' },
        { bench: 'memory-embedded-used', value: used, unit: `MB after ${jobs} jobs` },
      ]
    } finally {
      rmSync(dir, { recursive: true, force: true })
    }
  },
}
