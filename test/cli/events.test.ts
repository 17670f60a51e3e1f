/** `sluice events`, and `sluice work` with a file that exports handlers. */
import { afterEach, beforeEach, expect, it } from 'vitest'
import { event, newId, on } from '../../src/index.ts'
import { Sluice } from '../../src/sluice.ts'
import { freshDatabase } from '../servers/database.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'
import { createProject, objects, type Project } from './program.ts'

const file = `
import { event, fail, on, task } from 'sluice'
import { z } from 'zod'
const even = event('demo.number.even', z.object({ number: z.number() }), { version: 1, description: 'an even number' })
export const log = even.on(({ number }, { log }) => {
  if (number === 13) throw fail('unlucky')
  log.info('got ' + number)
}, { name: 'log' })
export const more = [on('demo.#', () => undefined, { name: 'audit' })]
export const other = task('other', { run: () => even.emit({ number: 2 }) })
`
let project: Project
let url: string

beforeEach(async () => {
  ;({ url } = await freshDatabase())
  await (await Sluice.open({ store: url })).close()
  project = createProject({ SLUICE_TASKS: 'tasks.ts', DATABASE_URL: url })
  project.write('tasks.ts', file)
})
afterEach(() => project.close())

it('the command line hosts handlers beside tasks, shows events, and replays or discards deliveries that failed', async () => {
  const nameless = await project.run(['dispatch', '--once'])
  expect(nameless.err).toContain('handlers of events need the name of their service')

  project.write('sluice.config.ts', `export default { service: 'numbers' }`)
  await project.run(['events', 'emit', 'demo.number.even', '{"number":0}'])
  const work = project.start(['work'])
  await work.says('working on other, http, 2 handlers of events from ')
  // The only event of the type was emitted before.
  expect((await project.run(['events'])).err).not.toContain('no service gets')
  const emitted = await project.run(['events', 'emit', 'demo.number.even', '{"number":4}', '--json'])
  const id = String(objects(emitted.out)[0]?.['id'])
  await work.says('got 4')
  await project.run(['send', 'other', 'null'])
  await work.says('got 2')
  await project.run(['events', 'emit', 'demo.number.even', '{"number":13}'])
  await work.says('unlucky')
  work.signal('SIGTERM')
  await work.ended

  const [list, asyncapi, show, archived] = await Promise.all([
    project.run(['events', 'list']),
    project.runWarm(['events', 'list', '--asyncapi']),
    project.run(['events', 'show', id.slice(0, -6)]),
    project.run(['jobs', '--state', 'failed', '--service', 'numbers', '--event', 'demo.number.even', '--json']),
  ])
  expect(list.out).toMatch(/demo\.number\.even +numbers v1 +numbers .+ ago +\{ number: number \}\n/)
  expect(list.out).toMatch(/numbers +log +demo\.number\.even +0 +1 +no worker/)
  expect(show.out).toContain(id)
  const several = await project.runWarm(['events', 'show', id.slice(0, 6)])
  expect(several.err).toContain(`several event ids begin with ${id.slice(0, 6)}: `)
  expect(several.err).toContain(`${id} (demo.number.even)`)
  const misspelled = await project.runWarm(['events', 'emit', 'demo.numbr.even', '{"number":4}'])
  expect(misspelled.err).toContain('no event demo.numbr.even was known before; did you mean demo.number.even?')
  const mistaken = await project.run(['send', 'demo.number.even', '{"number":4}'])
  expect(mistaken).toMatchObject({ code: 1, err: expect.stringContaining('`sluice events emit demo.number.even`') })
  expect(show.out).toMatch(/numbers audit: done, attempt 1 .*\n +numbers log: done, attempt 1/)
  expect(objects(archived.out)).toHaveLength(1)
  const document = JSON.parse(asyncapi.out) as Record<string, Record<string, unknown>>
  expect(document).toMatchObject({
    asyncapi: '3.0.0',
    channels: { 'demo.number.even': { address: 'demo.number.even' } },
    operations: {
      'send_numbers_demo.number.even': { action: 'send' },
      'receive_numbers_audit_demo.number.even': { action: 'receive', channel: { $ref: '#/channels/demo.number.even' } },
    },
    components: {
      messages: {
        'demo.number.even': {
          description: 'an even number',
          payload: { properties: { data: { properties: { number: { type: 'number' } } } } },
        },
      },
    },
  })

  const [none, unknown, exported] = await Promise.all([
    project.runWarm(['events', 'replay', '--service', 'nobody', '--dry-run']),
    project.runWarm(['events', 'show', '01a1fc6b-5572-7000-8000-000000000000']),
    project.runWarm(['events', 'export']),
  ])
  expect(none.out).toContain('0 jobs would be replayed')
  expect(unknown.err).toContain('there is no event')
  expect(objects(exported.out)).toMatchObject([{ input: { handler: 'log' } }])
  const nobody = [
    await project.runWarm(['events', 'replay', '--service', 'number', '--yes']),
    await project.runWarm(['jobs', '--state', 'failed', '--service', 'number']),
  ]
  for (const { err } of nobody) expect(err).toContain('sluice events list` has services, types and handlers')
  const replayed = await project.runWarm(['events', 'replay', '--all', '--yes', '--rate', '10/s'])
  expect(replayed.out + replayed.err).toContain('1 replayed')
  await project.run(['dispatch', '--once'])
  const gone = await project.runWarm(['events', 'discard', '--event', 'demo.number.even', '--yes'])
  expect(gone.out).toContain('1 discarded')
  const removed = await project.runWarm(['events', 'remove', 'numbers', 'audit'])
  expect(removed.out).toContain('numbers audit removed')
  const again = await project.runWarm(['events', 'remove', 'numbers', 'audit'])
  expect(again).toMatchObject({ code: 1, err: expect.stringContaining('no such subscription') })
  expect(again.err).toContain('sluice events list')
})

it('the command line shows the archive of a service on RabbitMQ, replays it and discards it', async () => {
  const { url: amqp } = await freshBroker()
  project.write('sluice.config.ts', `export default { service: 'numbers', events: 'rabbitmq', amqp: '${amqp}' }`)
  const work = project.start(['work'])
  await work.says('working on other, http, 2 handlers of events from ')
  const sluice = await Sluice.open({ store: url, events: 'rabbitmq', amqp, service: 'numbers' })
  const archived = sluice.events.archive()
  await sluice.events.emit(event('demo.number.even'), { number: 13 })
  await until(async () => (await archived.count()) === 1)
  const archive = (...args: string[]) => project.runWarm(['events', 'archive', ...args])
  const [list, exported] = [
    await project.run(['events', 'archive', 'list', 'numbers']),
    await archive('export', 'numbers', '--event', 'demo.#'),
  ]
  expect(list.out).toMatch(/demo.number.even .+ log +1 +refused +unlucky/)
  const [found] = objects(exported.out)
  expect(exported.err).toMatch(/^1 archived event written$/m)
  expect(objects((await archive('list', 'numbers', '--json')).out)).toEqual([found])
  expect(found).toMatchObject({ type: 'demo.number.even', handler: 'log', reason: 'refused', attempt: 1 })
  for (const id of [String(found?.['id']), String(found?.['id']).slice(-8)])
    expect((await archive('show', 'numbers', id)).out).toContain('unlucky')
  const shown = await project.runWarm(['events', 'show', String(found?.['id'])])
  expect(shown.out).toMatch(/numbers log: failed .+\n.*unlucky\n +numbers audit: done\n/)
  const [events, strange, handled] = [
    await project.runWarm(['events', 'list']),
    await archive('list', 'number'),
    await project.runWarm(['events', 'show', newId()]),
  ]
  expect(events.out).toMatch(/demo.number.even .+ numbers +- +(-|any)\n/)
  const bound = await project.runWarm(['events', 'remove', 'numbers', 'audit'])
  expect(bound).toMatchObject({ code: 1, err: expect.stringContaining('in RabbitMQ, as bindings') })
  // The service had events over the store before.
  const before = await Sluice.open({ store: url, events: 'store', service: 'numbers' })
  await (await before.work([on('demo.#', () => undefined, { name: 'audit' })])).stop()
  await before.close()
  const moved = await project.runWarm(['events', 'remove', 'numbers', 'audit'])
  expect(moved).toMatchObject({ code: 0, out: expect.stringContaining('numbers audit removed from the store') })
  expect(moved.err).toContain('unbind demo.# from the queue sluice.events:numbers:main in RabbitMQ')
  expect(bound.err).toContain('unbind demo.# from the queue sluice.events:numbers:main in RabbitMQ')
  expect(bound.err).toContain('as bindings of the exchange sluice.events, ')
  expect(bound.err).not.toContain('delete')
  const whole = await project.runWarm(['events', 'remove', 'numbers'])
  for (const pattern of ['demo.#', 'demo.number.even'])
    expect(whole.err).toContain(`unbind ${pattern} from the queue sluice.events:numbers:main in RabbitMQ`)
  expect(whole.err).toContain('or delete these queues, when no program of the service runs; its archive stays')
  expect(strange.err).toContain('SLUICE_NO_ARCHIVE: RabbitMQ has no queue "sluice.archive:number" in this virtual host')
  expect(handled.err).toContain(
    'over RabbitMQ those are found that wait for a retry, have failed, are for nobody, or that a worker remembers',
  )
  for (const verb of ['replay', 'discard', 'export']) {
    const { out, err } = await project.runWarm(['events', verb, ...(verb === 'export' ? [] : ['--all', '--yes'])])
    expect(out).not.toContain('1 ')
    expect(err).toContain(`sluice events archive ${verb} numbers`)
  }
  expect((await archive('replay', 'numbers')).err).toContain('1 archived event of service "numbers" would be replayed')
  expect((await archive('replay', 'numbers', '--yes', '--rate', '100/s')).out).toContain('1 replayed')
  await until(async () => (await archived.list())[0]?.attempt === 2)
  expect((await archive('discard', 'numbers', '--handler', 'other', '--yes')).out).toContain('0 discarded')
  expect(await archived.count()).toBe(1)
  await sluice.close()
  work.signal('SIGTERM')
  await work.ended
})
