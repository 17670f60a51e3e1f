/**
 * A vendor in a separate process: `node serve.js '<VendorOptions as JSON>'`. Prints its URL as the first line of stdout. Ends
 * when stdin ends or on SIGTERM, and prints its report as the last line. The `key` of a rule cannot be a function.
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
