// A hundred million jobs a day.
import { dayOver } from '../queues.mjs'

export default dayOver({ name: 'queues-100x', times: 100 })
