// A dispatcher in a process of its own, in front of Celery workers.
import { remoteTask, Sluice } from '../../dist/index.js'

const [store, amqp, queue, celeryResults] = process.argv.slice(2)
const sluice = await Sluice.open({ store, amqp, celeryResults })
const retry = { attempts: 4, base: 1, max: 50 }
await sluice.dispatch([remoteTask('many', { queue, slots: 4, retry, timeout: '60s' })])
process.send('ready')
