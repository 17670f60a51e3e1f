/** The catalogue as AsyncAPI 3.0: for each service that emits a type of events, an operation `send`; for each handler one `receive`. */
import type { EventLine } from './catalogue.ts'

/** Keeps the names of patterns apart. */
const slashed = (name: string) =>
  name
    .replaceAll('*', 'any')
    .replaceAll('#', 'all')
    .replaceAll(/[^A-Za-z0-9_.-]/g, '_')

/** Returns the document. @param title of the document */
export function asyncapiOf(lines: readonly EventLine[], title: string): Record<string, unknown> {
  const channel = (type: string) => ({ $ref: `#/channels/${slashed(type)}` })
  const operation = (action: 'send' | 'receive', service: string, type: string) => ({
    action,
    channel: channel(type),
    ...(service === '' ? {} : { tags: [{ name: service }] }),
  })
  const operations = lines.flatMap(({ type, publishers, subscribers }) => [
    ...publishers.map(({ service }) => [`send/${service}/${type}`, operation('send', service, type)] as const),
    ...subscribers.map(
      ({ service, handler }) => [`receive/${service}/${handler}/${type}`, operation('receive', service, type)] as const,
    ),
  ])
  return {
    asyncapi: '3.0.0',
    info: { title, version: '1.0.0' },
    defaultContentType: 'application/cloudevents+json',
    channels: Object.fromEntries(
      lines.map(({ type }) => [
        slashed(type),
        { address: type, messages: { event: { $ref: `#/components/messages/${slashed(type)}` } } },
      ]),
    ),
    operations: Object.fromEntries(operations.map(([name, value]) => [slashed(name), value])),
    components: { messages: Object.fromEntries(lines.map((line) => [slashed(line.type), messageOf(line)])) },
  }
}

/** Returns the newest definition of a type, which is what a new subscriber should expect. */
export function newestOf({ publishers }: Pick<EventLine, 'publishers'>): Partial<EventLine['publishers'][number]> {
  return publishers.toSorted((a, b) => (b.version ?? 0) - (a.version ?? 0))[0] ?? {}
}

function messageOf(line: EventLine): Record<string, unknown> {
  const { type } = line
  const { description = null, schema = null, version = null } = newestOf(line)
  const text = { type: 'string' }
  return {
    name: type,
    contentType: 'application/cloudevents+json',
    ...(description === null ? {} : { description }),
    payload: {
      type: 'object',
      required: ['specversion', 'id', 'source', 'type', 'data'],
      properties: {
        specversion: { const: '1.0' },
        id: { type: 'string', format: 'uuid' },
        source: text,
        type: { const: type },
        subject: text,
        time: { type: 'string', format: 'date-time' },
        datacontenttype: { const: 'application/json' },
        ...(version === null ? {} : { schemaversion: { type: 'integer' } }),
        data: movedTo(`#/components/messages/${slashed(type)}/payload/properties/data`, schema),
      },
    },
  }
}

/** Returns a schema whose references lead to its parts where it stands in the document: by itself it is a document of its own. */
function movedTo(place: string, schema: unknown): unknown {
  return JSON.parse(JSON.stringify(schema ?? {}), (name, value: unknown) =>
    name === '$ref' && typeof value === 'string' && value.startsWith('#') ? place + value.slice(1) : value,
  )
}
