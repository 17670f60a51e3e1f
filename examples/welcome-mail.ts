/**
 * Two kinds of calls in one durable queue, a mail by SMTP and a form by HTTP, each under "100 in any 60 minutes".
 * Every attempt counts, a retry as much as a first try. A job has at most three attempts, and final failures are reported.
 * The mail server and the web site are started here, on loopback. At the end the program prints what arrived there.
 *
 *     npm run setup && npx jiti examples/welcome-mail.ts
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'
import { createTransport } from 'nodemailer'
import { fail, type Failure, httpTask, limit, Sluice, task, useSluice } from 'sluice'
import { SMTPServer } from 'smtp-server'
import { z } from 'zod'

// What the two ends saw.
const mailbox: { attempts: string[]; delivered: string[] } = { attempts: [], delivered: [] }
const posts: string[] = []
const failures: string[] = []

const mailServer = await startMailServer()
const site = await startSite()
const smtp = createTransport({ host: '127.0.0.1', port: portOf(mailServer.server), pool: true })

const retry = { attempts: 3, base: '200ms' } as const
const onFailed = ({ task, input, reason, attempt, error }: Failure) =>
  void failures.push(`${task} ${JSON.stringify(input)} ${reason} after ${attempt} attempt(s): ${error?.message}`)

// `window` lets all hundred go at once and then none until the first of them is an hour old; `rate` would spread them.
const sendEmail = task('send_email', {
  input: z.object({ to: z.email(), name: z.string() }),
  limits: [limit('mail', { window: '100/h' })],
  retry,
  onFailed,
  async run({ to, name }, { job }) {
    try {
      await smtp.sendMail({
        from: 'hello@shop.test',
        to,
        subject: `Welcome, ${name}`,
        text: `Dear ${name}, it is good to have you.`,
        messageId: `<${job.id}@shop.test>`, // the same at each attempt, so that a second copy can be recognised
      })
    } catch (error) {
      // 5xx is permanent; any other error is retried.
      if (Number((error as { responseCode?: number }).responseCode) >= 500) throw fail(String(error))
      throw error
    }
  },
})

// The built-in HTTP task with limits of its own: its input is the request. Loopback is not a public address, so the
// stand-in for the site must be allowed; without `allowPrivate` no request goes to a private address.
const post = httpTask('post', {
  limits: [limit('site', { window: '100/h' })],
  allowPrivate: ['127.0.0.1'],
  retry,
  onFailed,
})

// A store in memory, so that each run starts empty. Without `store` the jobs are kept, in .sluice/data or DATABASE_URL.
const sluice = await Sluice.open({ store: 'memory:' })
useSluice(sluice)

type Call =
  | { method: 'send_email'; to: string; name: string }
  | { method: 'post'; url: string; form: Record<string, string> }

const calls: Call[] = [
  { method: 'send_email', to: 'ada@example.test', name: 'Ada' },
  { method: 'send_email', to: 'busy@example.test', name: 'Bo' }, // refused once with 450, then taken
  { method: 'send_email', to: 'full@example.test', name: 'Cy' }, // refused with 452 each time
  { method: 'send_email', to: 'nobody@example.test', name: 'Di' }, // refused with 550: there is no such mailbox
  { method: 'post', url: `${site.url}/subscribers`, form: { email: 'ada@example.test', list: 'news' } }, // 503, then 201
  { method: 'post', url: `${site.url}/moved-away`, form: { email: 'ada@example.test' } }, // 410
]
const ids = await Promise.all(calls.map((call) => (call.method === 'post' ? post.send(call) : sendEmail.send(call))))
await sluice.work([sendEmail, post])
for (const id of ids) await sluice.waitFor(id)

// The four mails took 7 attempts of this hour's 100. Of 110 more, 93 may go now, and 17 wait.
await sendEmail.sendMany(
  Array.from({ length: 110 }, (_, n) => ({ to: `customer-${n}@example.test`, name: `No. ${n}` })),
)
while (mailbox.delivered.length < 95 || failures.length < 3) await sleep(20)
const waiting = await sluice.list({ task: 'send_email', state: 'waiting' })
const why = await sluice.why(waiting.at(-1)?.id ?? '')

console.log(`mail server: ${mailbox.attempts.length} attempts, ${mailbox.delivered.length} mails delivered`)
for (const mail of mailbox.delivered.slice(0, 2)) console.log(`  ${mail}`)
console.log(`site: ${posts.length} requests`)
for (const line of posts) console.log(`  ${line}`)
console.log(`failed for good: ${failures.length}`)
for (const line of failures) console.log(`  ${line}`)
console.log(`waiting: ${waiting.length} mails until ${why?.notBefore?.toISOString()}: ${why?.reasons[0]?.text}`)

await sluice.close()
smtp.close()
mailServer.close()
site.close()

/** Starts a mail server that rejects some recipients. */
async function startMailServer(): Promise<SMTPServer> {
  const server = new SMTPServer({
    disabledCommands: ['AUTH', 'STARTTLS'],
    onRcptTo({ address }, _session, done) {
      mailbox.attempts.push(address)
      const refuse = (code: number, why: string) => done(Object.assign(new Error(why), { responseCode: code }))
      if (address.startsWith('nobody@')) refuse(550, 'no such mailbox')
      else if (address.startsWith('full@')) refuse(452, 'the mailbox is full')
      else if (address.startsWith('busy@') && mailbox.attempts.filter((to) => to === address).length === 1)
        refuse(450, 'busy, try later')
      else done()
    },
    onData(stream, { envelope }, done) {
      void text(stream).then((mail) => {
        mailbox.delivered.push(`${envelope.rcptTo[0]?.address}: ${/^Subject: (.*)$/m.exec(mail)?.[1]?.trim()}`)
        done()
      })
    },
  })
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve))
  return server
}

/** Starts a web site whose first answer is 503, and which answers 410 for one page. */
async function startSite(): Promise<{ url: string; close(): void }> {
  const answer = async (request: IncomingMessage, response: ServerResponse) => {
    const status = request.url === '/moved-away' ? 410 : posts.some((line) => line.includes('503')) ? 201 : 503
    posts.push(`${request.method} ${request.url} ${status} ${await text(request)}`)
    response.writeHead(status).end()
  }
  const server = createServer((request, response) => void answer(request, response))
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${portOf(server)}`,
    close: () => {
      server.close()
      server.closeAllConnections()
    },
  }
}

function portOf(server: { address(): unknown }): number {
  return (server.address() as AddressInfo).port
}
