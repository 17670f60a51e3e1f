/** The task that signup.py sends. Only workers need this file; Python and SQL do not. */
import { check, limit, task } from 'sluice'
import { z } from 'zod'

// A key that SQL could not compute: the mail provider counts mails for each domain.
const mailApi = limit('mail-api', {
  rate: '10/s',
  by: ({ email }: { email: string }) => email.slice(email.indexOf('@') + 1),
})

export const welcome = task('welcome', {
  input: z.object({ customer: z.number().int(), email: z.email() }),
  limits: [mailApi],
  async run({ customer, email }, { fetch, log }) {
    const api = process.env['MAIL_API']
    if (api === undefined) return log.info(`MAIL_API is not set, so customer ${customer} gets no mail`)
    await check(await fetch(`${api}/welcome/${email}`, { method: 'POST' }))
  },
})
