// One worker process of a fleet, which records when each job began. fleet.mjs controls it.
import { residentMb } from './cpu.mjs'
import { fill, monotonicMs } from './load.mjs'

const { peer: name, place, shape } = await new Promise((resolve) => process.once('message', resolve))
const { default: peer } = await import(`./peers/${name}.mjs`)
const session = await peer.open(place, shape)
const times = []
const keys = []
let worker

process.on('message', ({ go, stop }) => {
  if (go) void begin()
  if (stop) void end()
})
// The parent has ended.
process.on('disconnect', () => process.exit(1))
process.send({ ready: true })

async function begin() {
  worker = await session.work((input, call = fetch) => {
    times.push(monotonicMs())
    if (shape.kind === 'tenants') keys.push(input.accountId)
    if (shape.vendor === undefined) return undefined
    return shape.further > 0 ? callAgain(call) : drained(call(shape.vendor))
  })
  let told = ''
  setInterval(() => {
    const news = { ran: times.length, calls: session.calls?.(), tally: session.tally?.() }
    if (JSON.stringify(news) === told) return
    told = JSON.stringify(news)
    process.send(news)
  }, 100)
  process.send({ working: true })
  // If only one process can own the store, the sending process owns it.
  if (shape.fill > 0) await fill(session, shape.fill)
}

/** Makes further requests in one job, one after the other. */
async function callAgain(call) {
  for (let n = 0; n <= shape.further; n++) await drained(call(shape.vendor))
}

async function drained(calling) {
  await (await calling).text()
}

async function end() {
  const result = { times: [...times], keys: [...keys], rssMb: residentMb(process.pid) }
  await Promise.race([worker?.stop(), new Promise((resolve) => setTimeout(resolve, 5_000))]).catch(() => {})
  // The embedded engine unlocks its directory.
  if (place.dir !== undefined) await session.close()
  process.send({ result }, () => process.exit(0))
}
