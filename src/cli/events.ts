/** `sluice events`: who emits and handles events, what became of one, and what to do with deliveries that failed. */
import { Command } from 'commander'
import { codeOf, UsageError } from '../core/errors.ts'
import { nearest } from '../core/nearest.ts'
import { redact } from '../core/redact.ts'
import { asyncapiOf, newestOf } from '../events/asyncapi.ts'
import { unrouted } from '../events/names.ts'
import type { EventLine, EventRecord, HandlerLine, JobFilter, ServiceLine, Sluice } from '../index.ts'
import { event } from '../index.ts'
import { archiveCommand } from './archive.ts'
import { discardCommand, retryCommand } from './bulk.ts'
import { exportCommand } from './export.ts'
import { eventIdOf } from './ids.ts'
import { ago, brief, many, span, writeFacts } from './output.ts'
import { inStore, settingsOf, withSluice } from './settings.ts'
import { shapeOf } from './shape.ts'

/** A field that only deliveries of events have in their inputs. */
const deliveries: JobFilter = { input: { 'event.specversion': '1.0' } }

/** The next step if no delivery matches. Where RabbitMQ carries events, those that failed for good are no jobs. */
const otherwise = (verb: string) => async (sluice: Sluice) => {
  const services = await sluice.events.services().catch(() => [])
  const full = services.filter(({ archived }) => (archived ?? 0) > 0).map(({ service }) => service)
  if (full.length === 0) return 'no delivery that failed matches; `sluice events list` has services, types and handlers'
  const text = `the failed events of ${full.join(', ')} are in the archive on RabbitMQ`
  return `${text}: \`sluice events archive ${verb} ${full[0]}\``
}

/** `sluice events` and its commands. */
export function eventsCommand(): Command {
  return new Command('events')
    .description('events between services: the catalogue, what became of one, and deliveries that failed')
    .action(list)
    .addCommand(
      new Command('list')
        .description('list types of events with publishers, subscribers and payloads, and the handlers of services')
        .option('--asyncapi', 'write the catalogue, with the schemas of payloads, as an AsyncAPI 3.0 document')
        .action(list),
    )
    .addCommand(
      new Command('show').description('show what became of an event in each service').argument('<id>').action(show),
    )
    .addCommand(
      new Command('emit')
        .description('emit an event; its payload is not checked')
        .argument('<type>')
        .argument('[payload]', 'JSON; default null')
        .option('--subject <text>', 'what it is about')
        .action(emit),
    )
    .addCommand(
      retryCommand(
        'replay',
        'give failed deliveries another round of attempts',
        'replayed',
        deliveries,
        otherwise('replay'),
      ),
    )
    .addCommand(
      discardCommand('give failed deliveries up; they are kept as cancelled', deliveries, otherwise('discard')),
    )
    .addCommand(
      exportCommand(
        ['failed'],
        'write failed deliveries, oldest first, as one JSON object a line',
        { ...deliveries, state: 'failed' },
        otherwise('export'),
      ),
    )
    .addCommand(archiveCommand())
    .addCommand(
      new Command('remove')
        .description('end the subscription of a handler, or of a whole service; remove it from the code first')
        .argument('<service>')
        .argument('[handler]')
        .action(remove),
    )
}

async function list(flags: { asyncapi?: boolean }, command: Command): Promise<void> {
  const [out, { types, handlers, services, lostOnes, schema }] = await inStore(
    command,
    async ({ events }, _, settings) => ({
      types: await events.list(),
      handlers: await events.handlers(),
      services: await events.services(),
      lostOnes: await lostIn(events),
      schema: settings.schema,
    }),
  )
  if (flags.asyncapi === true) return out.line(JSON.stringify(asyncapiOf(types, schema), undefined, 2))
  if (out.json) return out.object({ types, handlers, services, unrouted: lostOnes })
  if (types.length + handlers.length + services.length === 0) {
    out.talk('no events are known: nobody has emitted one, or subscribed to one')
    return out.hint("`event('demo.number.even', schema)`, and `.on(…)` in the file of `sluice work`")
  }
  // RabbitMQ does not know when an event was last emitted.
  const never = services.length === 0 ? 'never' : '-'
  out.table([['EVENT', 'FROM', 'TO', 'LAST', 'PAYLOAD'], ...types.map((line) => typeCells(line, never))])
  if (handlers.length > 0) {
    out.line('')
    out.table([['SERVICE', 'HANDLER', 'EVENTS', 'RETRYING', 'FAILED', 'STATE'], ...handlers.map(handlerCells)])
  }
  if (services.length > 0) {
    out.line('')
    out.table([
      ['SERVICE', 'HANDLER', 'EVENTS', 'WAITING', 'RETRYING', 'ARCHIVED', 'STATE'],
      ...services.flatMap(serviceCells),
    ])
  }
  if (lostOnes > 0)
    return out.hint(`no service got ${many(lostOnes, 'event')}: \`sluice events archive list ${unrouted}\``)
  const lost = types.find(({ isUnrouted, subscribers }) => isUnrouted && subscribers.length === 0)
  if (lost !== undefined) return out.hint(`no service gets ${lost.type}: subscribe to it, or stop emitting it`)
  const failed = handlers.find(({ archived }) => archived > 0)
  const archived = services.find((each) => (each.archived ?? 0) > 0)
  if (failed === undefined && archived !== undefined)
    return out.hint(`\`sluice events archive list ${archived.service}\``)
  out.hint(
    failed === undefined ? '`sluice events show <id>`' : `\`sluice jobs --state failed --service ${failed.service}\``,
  )
}

/** Returns how many events RabbitMQ keeps that no service gets. The store, and a RabbitMQ without an archive, keep none. */
async function lostIn(events: Sluice['events']): Promise<number> {
  try {
    return await events.archive(unrouted).count()
  } catch (error) {
    if (codeOf(error) === 'SLUICE_NO_ARCHIVE') return 0
    throw error
  }
}

/** Retries and archived events are the whole service's, and stand beside its first handler. */
function serviceCells({ service, handlers, retrying, archived }: ServiceLine): string[][] {
  const steps = retrying.map(({ stepMs, count }) => `${count} for ${span(stepMs)}`).join(', ') || '0'
  return handlers.map(({ handler, pattern, waiting, isLive }, at) => {
    const own = at === 0 ? [steps, archived === null ? 'not kept' : String(archived)] : ['', '']
    return [service, handler, pattern, String(waiting), ...own, isLive ? 'live' : 'no worker']
  })
}

function typeCells(line: EventLine, never: string): string[] {
  const { type, publishers, subscribers, lastAt, isUnrouted } = line
  const { schema = null } = newestOf(line)
  const from = publishers.map(
    ({ service, version }) => `${service === '' ? '-' : service}${version === null ? '' : ` v${version}`}`,
  )
  return [
    type,
    brief(from.join(', ') || 'unknown', 40),
    brief(
      [...new Set(subscribers.map(({ service }) => service))].join(', ') || (isUnrouted ? 'nobody!' : 'nobody'),
      40,
    ),
    lastAt === null ? never : ago(lastAt),
    schema === null ? '-' : brief(shapeOf(schema), 60),
  ]
}

function handlerCells(line: HandlerLine): string[] {
  const { service, handler, pattern, retrying, archived, isLive, isCaughtUp, seenAt } = line
  const steps = Object.entries(retrying).map(([failures, n]) => `${n} after ${many(Number(failures), 'failure')}`)
  const gone = `no worker; last started ${ago(seenAt)}`
  const state = isLive ? (isCaughtUp ? 'live' : 'catching up') : gone
  return [service, handler, pattern, steps.join(', ') || '0', String(archived), state]
}

async function show(text: string, _: object, command: Command): Promise<void> {
  const [out, [found, services]] = await inStore(command, async ({ events }, sql) => {
    const one = await events.show(await eventIdOf(sql, text))
    return [one, one === undefined ? await events.services() : []] as const
  })
  if (found === undefined) {
    const kept =
      services.length === 0
        ? 'events are kept for `retention.events`'
        : `over RabbitMQ those are found that wait for a retry, have failed, are for nobody, or that a worker remembers; \`sluice jobs --state done --input event.id=${text}\` has those of handlers with limits, in their service's store`
    throw new UsageError('SLUICE_NO_SUCH_EVENT', `there is no event ${text}; ${kept}`)
  }
  const record = { ...found, event: redact(found.event) }
  if (out.json) return out.object(record)
  const { event: envelope, routed } = record
  out.line(out.paint('bold', envelope.type))
  const attributes = Object.entries(envelope).filter(([key]) => !['type', 'data'].includes(key))
  const data = envelope.data === undefined ? 'in no queue of RabbitMQ any more' : JSON.stringify(envelope.data)
  const facts = [...attributes, ['data', data], ['delivered to', many(routed, 'handler')]]
  writeFacts(
    out,
    facts.map((fact) => fact.map(String)),
    17,
  )
  for (const { service, handler, state, reason, attempt, error, job } of record.deliveries) {
    const how = state === null ? 'not delivered, or no longer kept' : `${state}${reason === null ? '' : ` (${reason})`}`
    const after = attempt === null ? '' : `, attempt ${attempt}`
    out.line(`  ${service} ${handler}: ${how}${after}${job === null ? '' : `  ${job}`}`)
    if (error !== null) out.line(`    ${brief(redact({ error }).error.message, 100)}`)
  }
  const silent = silentOf(record)
  if (silent > 0) out.line(`  ${many(silent, 'other handler')}: still to come, or handled, and no worker remembers it`)
  const [first] = record.deliveries
  const job = (record.deliveries.find(({ error }) => error !== null) ?? first)?.job
  out.hint(job === undefined || job === null ? '`sluice events list`' : `\`sluice jobs show ${job}\``)
}

/** Returns how many handlers of an event RabbitMQ knows nothing of; 0 for one that is in the store, or waits for all handlers of a group. */
function silentOf({ routed, deliveries }: Pick<EventRecord, 'routed' | 'deliveries'>): number {
  const isOnBroker = deliveries.some(({ job, state }) => job === null && state !== null)
  if (!isOnBroker || deliveries.some(({ handler }) => handler === '*')) return 0
  return routed - new Set(deliveries.map(({ service, handler }) => JSON.stringify([service, handler]))).size
}

async function emit(
  type: string,
  payload: string | undefined,
  flags: { subject?: string },
  command: Command,
): Promise<void> {
  const settings = await settingsOf(command)
  const { out } = settings
  const made = event(type)
  let data: unknown = null
  try {
    data = JSON.parse(payload ?? 'null')
  } catch (cause) {
    throw new UsageError('SLUICE_BAD_JSON', `the payload is not JSON: ${String(cause)}`, { cause })
  }
  const [id, types] = await withSluice(settings, { creates: true }, async ({ events }) => {
    const known = await events.list().catch(() => undefined)
    return [await events.emit(made, data, flags), known] as const
  })
  if (out.json) out.object({ id })
  else out.line(id)
  const known = types?.find((one) => one.type === type)
  if (types === undefined || (known?.subscribers.length ?? 0) > 0) return out.hint(`\`sluice events show ${id}\``)
  const what =
    known === undefined ? `no event ${type} was known before` : `no service is known that gets events ${type}`
  const like = nearest(
    type,
    types.map((one) => one.type).filter((one) => one !== type),
  )
  out.talk(`${what}${like === undefined ? '' : `; did you mean ${like}?`}`)
  out.hint('`sluice events list` has types, and who gets them')
}

async function remove(service: string, handler: string | undefined, _: object, command: Command): Promise<void> {
  const [out, [services, gone]] = await inStore(
    command,
    async ({ events }) => [await events.services(), await events.remove(service, handler)] as const,
  )
  if (gone.length === 0) process.exitCode = 1
  if (out.json) return out.object({ service, removed: gone })
  const line = services.find((each) => each.service === service)
  const bound = line?.handlers.filter((each) => handler === undefined || each.handler === handler) ?? []
  if (line !== undefined && bound.length > 0) {
    // A service that has moved to RabbitMQ has subscriptions in the store, too.
    for (const name of gone) out.line(`${service} ${name} removed from the store`)
    out.talk(
      `service "${service}" has its subscriptions in RabbitMQ, as bindings of the exchange ${line.exchange}, and this command ends none`,
    )
    for (const each of new Set(bound.map(({ pattern, queue }) => `${pattern} from the queue ${queue}`)))
      out.hint(`unbind ${each} in RabbitMQ, when no handler of it needs that`)
    if (handler === undefined)
      out.hint('or delete these queues, when no program of the service runs; its archive stays')
    return
  }
  if (gone.length === 0) {
    out.talk(`service "${service}" has no such subscription`)
    return out.hint('`sluice events list`')
  }
  for (const name of gone) out.line(`${service} ${name} removed`)
  out.hint(`\`sluice cancel --service ${service}\` for deliveries that wait`)
}
