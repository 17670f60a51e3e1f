import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import pg from 'pg'
import { expect, it } from 'vitest'
import { Sluice } from '../../src/index.ts'
import { vendor } from '../../src/testing/index.ts'
import { createProject, objects } from '../cli/program.ts'
import { freshDatabase } from '../servers/database.ts'
import { findPython } from './interpreter.ts'
import { line } from './program.ts'

const place = fileURLToPath(new URL('../../examples/python', import.meta.url))

it('Python sends in its own transaction, and a worker checks, rules and limits these jobs', async ({
  onTestFinished,
}) => {
  const { url } = await freshDatabase()
  const mails = vendor({ rules: [] })
  const project = createProject({
    DATABASE_URL: url,
    MAIL_API: await mails.listen(),
    SLUICE_ALLOW_PRIVATE: '127.0.0.1',
  })
  const client = new pg.Client(url)
  onTestFinished(async () => {
    await Promise.all([project.close(), client.end(), mails.close()])
  })
  await client.connect()
  expect(await project.run(['migrate'])).toMatchObject({ code: 0 })

  const env = { ...process.env, DATABASE_URL: url, PYTHONDONTWRITEBYTECODE: '1' }
  const { stdout } = await promisify(execFile)(await findPython('psycopg2'), [`${place}/signup.py`], { env })
  const idOf = (email: string) => /: job (.*)$/.exec(line(stdout, email))?.[1] as string
  const [ada, probe, bad] = ['ada@', 'probe@', 'not an'].map(idOf) as [string, string, string]
  expect(line(stdout, 'mallory@')).toContain('neither customer nor job, for mallory@banned.test may not sign up')
  expect(line(stdout, 'bo@')).toContain('neither customer nor job, for SLUICE_BAD_OPTION: there is no option "prio"')
  const { rows } = await client.query('select email from customer order by id')
  expect(rows.map(({ email }) => email as string)).toEqual(['ada@shop.test', 'probe@example.com', 'not an address'])

  const jobs = async (...args: string[]) => objects((await project.run(['jobs', ...args, '--json'])).out)
  expect(new Set((await jobs()).map(({ id }) => id))).toEqual(new Set([ada, probe, bad]))
  expect((await project.run(['why', ada])).out).toContain('worker')

  const ran = await project.run(['dispatch', '--once', '--config', `${place}/sluice.config.ts`])
  expect(ran).toMatchObject({ code: 0 })
  expect(mails.arrivals().map(({ method, path }) => `${method} ${path}`)).toEqual(['POST /welcome/ada@shop.test'])
  const [job] = await jobs('show', ada)
  expect(job).toMatchObject({
    state: 'done',
    queue: 'mail',
    priority: 5,
    tags: ['signup'],
    limits: ['mail-api:shop.test'],
  })
  expect((await jobs('show', probe))[0]).toMatchObject({
    state: 'cancelled',
    reason: 'discarded by rule test-address: a test address',
  })
  expect((await jobs('show', bad))[0]).toMatchObject({ state: 'failed', reason: 'refused' })
}, 300_000)

it('Django sends in its transactions, and what rolls back to a savepoint takes its job along', async (context) => {
  const { url } = await freshDatabase()
  const sluice = await Sluice.open({ store: url })
  context.onTestFinished(() => sluice.close())
  const env = { ...process.env, DATABASE_URL: url, PYTHONDONTWRITEBYTECODE: '1' }
  const python = await findPython('django', 'psycopg2')
  const { stdout } = await promisify(execFile)(python, [`${place}/django_signup.py`], { env })
  expect(line(stdout, 'bo@')).toContain('SLUICE_BAD_OPTION: there is no option "prio"')
  expect(line(stdout, 'mallory@')).toContain('may not sign up')
  expect(line(stdout, 'eve@')).toContain('the request has failed')
  const customers = await sluice.db.query<{ id: string; email: string }>(
    'select id, email from shop_customer order by id',
  )
  expect(customers.map(({ email }) => email)).toEqual(['ada@shop.test', 'cy@shop.test', 'di@shop.test'])
  const jobs = await Promise.all((await sluice.list()).map(({ id }) => sluice.jobs.get(id)))
  const inputs = jobs.map((job) => job?.input as { customer: number; email: string })
  expect(new Set(inputs.map(({ customer, email }) => `${customer} ${email}`))).toEqual(
    new Set(customers.map(({ id, email }) => `${id} ${email}`)),
  )
}, 300_000)
