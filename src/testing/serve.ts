/**
 * A vendor as a process of its own: `node serve.js '<VendorOptions as JSON>'`. Prints its URL as the first line of
 * stdout; ends when stdin ends or on SIGTERM, and prints its report as the last line. Rules take keys by name only.
 */
import { vendor } from './vendor.ts'
import type { VendorOptions } from './vendor.ts'

const standIn = vendor({ ...(JSON.parse(process.argv[2] ?? '{"rules":[]}') as VendorOptions), control: true })
process.stdout.write(`${await standIn.listen()}\n`)

let ending = false
const end = () => {
  if (ending) return
  ending = true
  process.stdin.destroy()
  void standIn.close().then(() => process.stdout.write(`${JSON.stringify(standIn.report())}\n`))
}
process.once('SIGTERM', end)
process.stdin.on('end', end).resume()
