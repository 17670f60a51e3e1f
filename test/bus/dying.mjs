// A worker that dies of each event that it handles.
import { event, Sluice } from '../../dist/index.js'

const [store, amqp] = process.argv.slice(2)
const sluice = await Sluice.open({ store, amqp, service: 'a', events: 'rabbitmq' })
const fatal = event('fatal').on(() => process.kill(process.pid, 'SIGKILL'), { retry: { attempts: 2, base: 50 } })
await sluice.work([fatal])
