// Emitting events that the store carries, while two services have a handler for them: in bulk, awaited one by one, and 16 at once.
import { Sluice, event } from '../../dist/index.js'
import { calledBy, message, secondsSince } from '../load.mjs'

const ordered = event('bench.ordered')

export default {
  name: 'emit',
  about:
    'events recorded per second, each with its deliveries to two services: in bulk, awaited one by one, 16 in flight',
  peers: ['sluice'],
  full: { events: 50_000, seconds: 3 },
  quick: { events: 10_000, seconds: 1 },
  shape: () => ({ kind: 'throughput' }),
  async run({ peer, place, options, shape }) {
    const session = await peer.open(place, shape)
    const { events } = session.sluice
    for (const service of ['billing', 'shipping']) {
      const sluice = await Sluice.open({ store: place.url, service })
      await sluice.dispatchOnce([ordered.on(() => undefined)])
      await sluice.close()
    }
    // The first calls prepare statements.
    const emit = () => events.emit(ordered, message)
    for (let i = 0; i < 20; i++) await emit()
    const single = await calledBy(1, options.seconds, emit)
    const several = await calledBy(16, options.seconds, emit)
    const since = performance.now()
    await events.emitMany(ordered, Array(options.events).fill(message))
    const bulk = options.events / secondsSince(since)
    await session.close()
    return [
      { bench: 'emit-bulk', value: bulk, unit: 'events/s' },
      { bench: 'emit-single', value: single, unit: 'events/s' },
      { bench: 'emit-16', value: several, unit: 'events/s' },
    ]
  },
}
