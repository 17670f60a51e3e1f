/** One limit, and two tasks under it: one that Python implements (shop.py), and one in Node. */
import { check, limit, remoteTask, task } from 'sluice'
import { z } from 'zod'

// Python's own way to the vendor is not measured: it varies by up to this much.
const crm = limit('crm', { rate: '20/2s', transit: '500ms' })
const input = z.object({ customer: z.number().int() })
const retry = { attempts: 3, base: '100ms' } as const

export const sync = remoteTask('shop.sync', { input, limits: [crm], retry, timeout: '15s', queue: 'sync', slots: 4 })

export const push = task('push', {
  input,
  limits: [crm],
  retry,
  async run({ customer }, { fetch }) {
    await check(await fetch(`${process.env['CRM_API']}/push/${customer}`, { method: 'POST' }))
  },
})
