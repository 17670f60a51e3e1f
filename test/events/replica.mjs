// A replica of a service: appends a line to a file for each event that its handler gets, until it is killed.
import { appendFileSync } from 'node:fs'
import { join } from 'node:path'
import { event, Sluice } from '../../dist/index.js'

const [url, service, dir] = process.argv.slice(2)
const sluice = await Sluice.open({ store: url, service })
const file = join(dir, `${service}-${process.pid}`)
const record = event('fleet.number').on(
  async ({ n }, { redelivered, event: { id } }) => {
    await new Promise((resolve) => setImmediate(resolve))
    appendFileSync(file, `${service} ${n} ${redelivered} ${id}\n`)
  },
  { name: 'record' },
)
await sluice.work([record], { concurrency: 10 })
process.stdout.write('ready\n')
