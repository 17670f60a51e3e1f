// Enqueueing: in bulk, one by one, and 16 at once, each awaited until it is durable (as far as the peer's server is).
import { calledBy, everyPeer, fill, message, secondsSince } from '../load.mjs'

export default {
  name: 'send',
  about: 'jobs recorded per second: in bulk (1,000 a call), awaited one by one, 16 in flight',
  peers: everyPeer,
  full: { jobs: 50_000, seconds: 3 },
  quick: { jobs: 10_000, seconds: 1 },
  shape: () => ({ kind: 'throughput' }),
  async run({ peer, place, options, shape }) {
    const session = await peer.open(place, shape)
    const send = () => session.sendOne(message)
    const lines = []
    // The first calls prepare statements, load scripts and define limits, and V8 compiles what they run.
    await calledBy(1, options.seconds / 3, send)
    if (session.sendMany !== undefined) {
      await session.sendMany([message, message])
      const since = performance.now()
      await fill(session, options.jobs)
      lines.push({ bench: 'send-bulk', value: options.jobs / secondsSince(since), unit: 'jobs/s' })
    }
    lines.push({ bench: 'send-single', value: await calledBy(1, options.seconds, send), unit: 'jobs/s' })
    lines.push({ bench: 'send-16', value: await calledBy(16, options.seconds, send), unit: 'jobs/s' })
    await session.close()
    return lines
  },
}
