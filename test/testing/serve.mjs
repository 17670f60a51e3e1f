// Several vendors in one process: `node serve.mjs '<VendorOptions[] as JSON>'` prints their URLs, and ends with stdin.
import { vendor } from '../../dist/testing/vendor.js'

const vendors = JSON.parse(process.argv[2]).map((options) => vendor({ ...options, control: true }))
process.stdout.write(`${JSON.stringify(await Promise.all(vendors.map((one) => one.listen())))}\n`)
process.stdin.on('end', () => process.exit()).resume()
