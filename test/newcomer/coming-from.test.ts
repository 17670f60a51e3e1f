/** The examples of docs/coming-from.md, run against the built package. */
import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { freshDatabase } from '../servers/database.ts'
import { createNewcomer } from './newcomer.ts'
import { brief } from '../v8.ts'

const execute = promisify(execFile)
const page = readFileSync(fileURLToPath(new URL('../../docs/coming-from.md', import.meta.url)), 'utf8')

/** Runs a program beside the page's examples; resolves to what it printed as JSON. */
async function run(program: string): Promise<unknown> {
  const project = createNewcomer(['postgres'])
  project.write('package.json', '{"type":"module"}')
  for (const [, name = '', text = ''] of page.matchAll(/```js\n\/\/ (\S+)\n([^]*?)```/g)) project.write(name, text)
  project.write('main.js', program)
  const env = { ...project.env, DATABASE_URL: (await freshDatabase()).url }
  // As in vitest.config.ts.
  const { stdout } = await execute(process.execPath, [...brief, join(project.dir, 'main.js')], { env })
  return JSON.parse(stdout)
}

it('the job after the parts runs once, when all of them have ended, also by failing', async () => {
  const results = await run(`
    import { Sluice, useSluice } from 'sluice'
    import { orderReport, readMonth, sendReport, sql } from './report.js'
    const sluice = await Sluice.open()
    useSluice(sluice)
    await sql\`create table part (report text, month int, figures json, primary key (report, month))\`
    await orderReport('a', [1, 2, 13])
    await orderReport('b', [4])
    await sluice.work([readMonth, sendReport], { concurrency: 8 })
    const ends = []
    for (; ends.length < 2; await new Promise((resolve) => setTimeout(resolve, 20))) {
      ends.length = 0
      for await (const job of sluice.jobs.stream({ task: 'send-report', state: 'done' })) ends.push(job)
    }
    console.log(JSON.stringify(Object.fromEntries(ends.map(({ input, result }) => [input.report, result]))))
    await sluice.close()
    await sql.end()
  `)
  expect(results).toEqual({
    a: [
      { month: 1, figures: { total: 100 } },
      { month: 2, figures: { total: 200 } },
      { month: 13, figures: { failed: 'there is no such month' } },
    ],
    b: [{ month: 4, figures: { total: 400 } }],
  })
})

it('reminders that are due are sent once, and the others wait', async () => {
  const results = await run(`
    import { testSluice } from 'sluice/testing'
    import { eachMinute, remind, sendReminders, sql } from './reminders.js'
    const start = new Date('2030-01-01T12:00:30Z')
    const t = await testSluice({
      tasks: [remind, sendReminders], schedules: [eachMinute], start, store: process.env.DATABASE_URL, schema: 'test',
    })
    await sql\`create table reminder (id int primary key, text text, due timestamptz, every interval)\`
    await sql\`insert into reminder values (1, 'tea', '2030-01-01T12:01Z', '2 minutes'), (2, 'sleep', '2030-01-01T23:00Z', '1 day')\`
    await t.drain({ advance: '4min' })
    console.log(JSON.stringify({ sent: (await t.sent(remind)).map(({ text }) => text), next: await sql\`select due from reminder order by id\` }))
    await t.close()
    await sql.end()
  `)
  expect(results).toEqual({
    sent: ['tea', 'tea'],
    next: [{ due: '2030-01-01T12:05:00.000Z' }, { due: '2030-01-01T23:00:00.000Z' }],
  })
})
