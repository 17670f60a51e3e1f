// A million jobs a day.
import { dayOver } from '../queues.mjs'

export default dayOver({ name: 'queues-1x', times: 1 })
