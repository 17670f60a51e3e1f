/** `--json` prints the fields that docs/json.md promises. */
import { readFileSync } from 'node:fs'
import type { Command } from 'commander'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { build } from '../../src/cli/program.ts'
import { event, fail, limit, schedule, Sluice, task } from '../../src/index.ts'
import { freshDatabase } from '../servers/database.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'
import { createProject, objects, type Project, tasksFile } from './program.ts'

const page = readFileSync(new URL('../../docs/json.md', import.meta.url), 'utf8')
/** The rows of the page: the words for commands, and the fields, of which those in brackets may be missing. */
const rows = [...page.matchAll(/^\| (.+) \| (.+) \|$/gm)].slice(1).map(([, commands = '', fields = '']) => ({
  commands,
  fields: [...fields.matchAll(/(\()?`(\w+)`/g)].map(([, bracket, name = '']) => ({
    name,
    mayLack: bracket !== undefined,
  })),
}))

const crm = limit('crm', { rate: '100/min', by: 'accountId' })
const sync = task('sync-contact', {
  limits: [crm],
  run: ({ accountId }: { accountId: string }) => `synced ${accountId}`,
})
const broken = task('broken', { retry: { attempts: 1 }, run: () => Promise.reject(fail('the vendor said 404')) })
const nightly = schedule('nightly', { task: broken, cron: '0 3 * * *', zone: 'UTC', input: {} })
const seen = event('demo.number.even')
const handler = seen.on(() => {}, { name: 'count' })

let sluice: Sluice
let project: Project
/** The same with events over RabbitMQ. */
let overRabbit: Project
let ids: Record<'waiting' | 'failed' | 'event' | 'archived', string>
beforeAll(async () => {
  const { url } = await freshDatabase()
  sluice = await Sluice.open({ store: url, service: 'demo' })
  project = createProject({ DATABASE_URL: url, SLUICE_SERVICE: 'demo' })
  project.write(
    'tasks.ts',
    `import { schedule } from 'sluice'${tasksFile}
export const nightly = schedule('nightly', { task: fails, cron: '0 3 * * *', zone: 'UTC', input: {} })`,
  )
  project.write('rows.ndjson', '{"accountId":"a1"}\n')
  const failed = await sluice.send(broken, {})
  await sluice.send(sync, { accountId: 'a1' })
  const work = [sync, broken, handler]
  await sluice.dispatchOnce(work, { schedules: [nightly] })
  const made = await sluice.events.emit(seen, { number: 4 })
  await sluice.dispatchOnce(work)
  await sluice.sendMany(
    sync,
    Array.from({ length: 30 }, () => ({ accountId: 'a1' })),
  )
  const waiting = await sluice.send(sync, { accountId: 'a1' }, { delay: '1h' })
  await sluice.work(work)
  const { url: amqp } = await freshBroker()
  overRabbit = createProject({ DATABASE_URL: url, SLUICE_SERVICE: 'demo', SLUICE_EVENTS: 'rabbitmq', AMQP_URL: amqp })
  const emitter = await Sluice.open({ store: url, service: 'demo', events: 'rabbitmq', amqp })
  const archived = await emitter.events.emit(event('demo.nobody'), {})
  await until(async () => (await emitter.events.archive('sluice.unrouted').count()) === 1)
  await emitter.close()
  ids = { waiting, failed, event: made, archived }
})
afterAll(async () => {
  await sluice.close()
  await project.close()
  await overRabbit.close()
})

const why = ['--reason', 'a test']
const json = '{"accountId":"a1"}'
const tasks = ['--tasks', 'tasks.ts']
/** For each row of the page, commands that are run, in this order. */
const calls: (readonly [string, (of: typeof ids) => string[]])[] = [
  ['`status`', () => ['status', '--members', '--storage']],
  ['`why`', ({ waiting }) => ['why', waiting]],
  ['`why`', ({ failed }) => ['why', failed]],
  ['`jobs`', () => ['jobs', '--state', 'failed']],
  ['`jobs show`', ({ failed }) => ['jobs', 'show', failed]],
  ['`jobs export`', () => ['jobs', 'export', '--state', 'failed']],
  ['`tasks`', () => ['tasks']],
  ['`limits`', () => ['limits']],
  ['`limits show`', () => ['limits', 'show', 'crm']],
  ['`limits usage`', () => ['limits', 'usage']],
  ['`limits set`', () => ['limits', 'set', 'crm', '--rate', '50/min', ...why]],
  ['`limits history`', () => ['limits', 'history', 'crm']],
  ['`limits unset`', () => ['limits', 'unset', 'crm']],
  ['`limits pin`', () => ['limits', 'pin', 'crm', '--rate', '5/min', ...why]],
  ['`limits unpin`', () => ['limits', 'unpin', 'crm']],
  ['`limits pause`', () => ['limits', 'pause', 'crm', '--key', 'a1', ...why]],
  ['`pauses`', () => ['pauses']],
  ['`limits resume`', () => ['limits', 'resume', 'crm', '--key', 'a1']],
  ['`limits reset`', () => ['limits', 'reset', 'crm', '--key', 'a1']],
  ['`limits rekey`', () => ['limits', 'rekey', 'crm', '--key', 'a1', '--to', 'a2', '--yes']],
  ['`limits close`', () => ['limits', 'close', '--yes']],
  ['`pause`', () => ['pause', '--task', 'broken', ...why]],
  ['`resume`', () => ['resume', '--task', 'broken']],
  ['`schedules`', () => ['schedules']],
  ['`schedules show`', () => ['schedules', 'show', 'nightly']],
  ['`schedules pause`', () => ['schedules', 'pause', 'nightly']],
  ['`schedules resume`', () => ['schedules', 'resume', 'nightly']],
  ['`schedules trigger`', () => ['schedules', 'trigger', 'nightly', ...tasks]],
  ['`schedules remove`', () => ['schedules', 'remove', 'nightly']],
  ['`events list`', () => ['events', 'list']],
  ['`events show`', ({ event: made }) => ['events', 'show', made]],
  ['`events emit`', () => ['events', 'emit', 'demo.number.even', '{"number":6}']],
  ['`events replay`, ', () => ['events', 'replay', '--service', 'demo', '--yes']],
  ['`events discard` with', () => ['events', 'discard', '--service', 'demo', '--yes']],
  ['`events archive list`', () => ['events', 'archive', 'list', 'sluice.unrouted']],
  ['`events archive show`', ({ archived }) => ['events', 'archive', 'show', 'sluice.unrouted', archived]],
  ['`events remove`', () => ['events', 'remove', 'demo', 'gone']],
  ['`jobs edit`', ({ failed }) => ['jobs', 'edit', failed, '{}', '--dry-run']],
  ['the same with `--dry-run`', () => ['retry', '--task', 'broken', '--dry-run']],
  ['`cancel` with ids', ({ failed }) => ['retry', failed]],
  ['`jobs discard`', () => ['jobs', 'discard', '--task', 'broken', '--yes']],
  ['`reprioritise`, ', () => ['reprioritise', '--task', 'sync-contact', '--priority', '5', '--yes']],
  ['`cancel` with ids', ({ waiting }) => ['cancel', waiting]],
  ['`cancel`, `reprioritise`', () => ['cancel', '--task', 'sync-contact', '--yes']],
  ['`verify`', () => ['verify']],
  ['`doctor`', () => ['doctor']],
  ['`migrate`', () => ['migrate']],
  ['`prune`', () => ['prune']],
  ['`prune --value`', () => ['prune', '--value', 'a1', '--dry-run']],
  ['`send`', () => ['send', 'sync-contact', json, ...tasks]],
  ['`send --dry-run`', () => ['send', 'sync-contact', json, ...tasks, '--dry-run', '--idempotency-key', 'k']],
  ['`send --from`', () => ['send', 'sync-contact', '--from', 'rows.ndjson', ...tasks]],
  ['`send --from --dry-run`', () => ['send', 'sync-contact', '--from', 'rows.ndjson', ...tasks, '--dry-run']],
  ['`dispatch --once`', () => ['dispatch', '--once', ...tasks]],
  ['`init`', () => ['init', '--yes', '--dry-run']],
]

it('with --json each command prints the fields that its row of the page has', async () => {
  for (const [words, argsOf] of calls) {
    const args = [...argsOf(ids), '--json']
    const row = rows.find(({ commands }) => commands.includes(words))
    // Tasks stay in the process that has loaded them.
    const place = args.includes('archive') ? overRabbit : project
    const { out, err } = await (args.includes('--tasks') ? place.run(args) : place.runWarm(args))
    const found = Object.keys(objects(out)[0] ?? {})
    const what = `${args.join(' ')}: ${err}`
    expect(row?.fields.map(({ name }) => name) ?? [], what).toEqual(expect.arrayContaining(found))
    const always = row?.fields.filter(({ mayLack }) => !mayLack).map(({ name }) => name) ?? []
    expect([found.length > 0, found], what).toEqual([true, expect.arrayContaining(always)])
  }
})

/** Commands that print no JSON, go on until they are stopped, or need a broker. */
const others = /^(completion|demo|dev|work|release|limits redis|events export|events archive( export)?)$/

it('the page names every command, and each row is tested', async () => {
  const pathsOf = ({ commands }: Command, path: string): string[] =>
    commands.flatMap((one) => [`${path}${one.name()}`, ...pathsOf(one, `${path}${one.name()} `)])
  const all = pathsOf(await build(['demo']), '').filter((path) => !/\b(help|complete)$/.test(path))
  const isNamed = (path: string) => rows.some(({ commands }) => new RegExp(`\`${path}[\` ]`).test(commands))
  expect(all.filter((path) => !isNamed(path) && !others.test(path))).toEqual([])
  const untested = rows.filter(({ commands }) => !calls.some(([words]) => commands.includes(words)))
  expect(untested).toEqual([])
})
