/**
 * Handlers that are in another group than before, or have another pattern. Their former queues get nothing new for them; what is there
 * goes to where they are now.
 */
import type { Broker } from '../amqp/broker.ts'
import type { EventHandler } from '../events/handler.ts'
import { matches } from '../events/names.ts'
import { letterOf } from './archive.ts'
import { type Entry, type FormerPlacing, type Placing, placingsOf } from './entries.ts'
import type { Letter, Mail } from './mail.ts'
import { type Progress, progressOf } from './message.ts'
import type { Source } from './source.ts'

/** A handler that is elsewhere now. */
export interface Move {
  readonly from: Placing
  readonly to: Source
  /** Its present name. */
  readonly handler: string
  /** The process that started last still had it there. */
  readonly isNew: boolean
}

/** What differs between what earlier processes have bound, and the present groups. */
export interface Moves {
  readonly moves: readonly Move[]
  /** Bindings that nobody needs any more. */
  readonly undone: readonly Placing[]
  /** For the entry: where the service's handlers are. */
  readonly handlers: readonly Placing[]
  /** For the entry: what earlier processes have bound beside that. Other programs may serve it under the same name. */
  readonly former: readonly FormerPlacing[]
}

/** Where a message goes. */
interface Place {
  to: Source
  handler: string
}

/**
 * A process that starts with what was left so recently is one of the release before, which is being replaced: it does not take bindings
 * away from the present one.
 */
const replacingMs = 3_600_000

/** Returns what has moved since an entry was left. */
export function movesOf(
  earlier: Pick<Entry, 'handlers' | 'former'> | undefined,
  sources: readonly Source[],
  nowMs: number,
): Moves {
  const present = placingsOf(sources)
  const own = new Set(present.map(textOf))
  const last = new Map(earlier?.handlers.map((each) => [textOf(each), each]))
  const left = new Map(earlier?.former.map((each) => [textOf(each), each]))
  const leftAt = new Date(nowMs).toISOString()
  for (const [text, each] of last) left.set(text, { ...each, leftAt })
  const isReplaced = (each: Placing) => {
    const before = left.get(textOf(each))
    return before !== undefined && !last.has(textOf(each)) && nowMs - Date.parse(before.leftAt) < replacingMs
  }
  const replaced = new Set(present.filter(isReplaced).map(({ handler }) => handler))
  const others = [...left].filter(([text]) => !own.has(text)).map(([, each]) => each)
  const moves = others.flatMap((from): Move[] => {
    const found = placeOf(from.handler, sources)
    if (found === undefined) return []
    return [{ from, to: found.source, handler: found.handler.name, isNew: last.has(textOf(from)) }]
  })
  const gone = new Set(moves.filter(({ handler }) => !replaced.has(handler)).map(({ from }) => from))
  const needed = new Set([...present, ...others.filter((each) => !gone.has(each))].map(bindingOf))
  const isHeld = ({ handler }: Placing) => replaced.has(handler)
  const handlers = [...present.filter((each) => !isReplaced(each)), ...[...last.values()].filter(isHeld)]
  const recorded = new Set(handlers.map(textOf))
  return {
    moves,
    undone: [...gone].filter((each) => !needed.has(bindingOf(each))),
    handlers,
    former: [...left.values()].filter((each) => !recorded.has(textOf(each))),
  }
}

const textOf = ({ handler, pattern, queue }: Placing) => JSON.stringify([handler, pattern, queue])
const bindingOf = ({ pattern, queue }: Placing) => JSON.stringify([pattern, queue])

function placeOf(name: string, sources: readonly Source[]): { source: Source; handler: EventHandler } | undefined {
  for (const source of sources)
    for (const handler of source.handlers)
      if (handler.name === name || handler.formerly.includes(name)) return { source, handler }
  return undefined
}

/**
 * Returns the handlers in other queues that a message is for: the one that it names, else those that have left this queue.
 * @param queue where it is
 */
export function placesOf(
  { handler, type }: Progress,
  queue: string,
  sources: readonly Source[],
  moves: readonly Move[],
): Place[] {
  if (handler !== undefined) {
    const place = placeOf(handler, sources)
    return place === undefined || place.source.queue === queue ? [] : [{ to: place.source, handler }]
  }
  const found = moves.filter(
    ({ from, to }) => from.queue === queue && to.queue !== queue && matches(from.pattern, type),
  )
  return [...new Map(found.map(({ to, handler: name }) => [name, { to, handler: name }])).values()]
}

/** Removes the bindings that nobody needs any more. Called when the present ones are there, so that no event is lost in between. */
export async function unbind(broker: Broker, { moves, undone }: Moves): Promise<void> {
  const bindings = moves.flatMap(({ to }) => to.topology.bindings ?? [])
  const exchanges = new Set(bindings.map(({ exchange }) => exchange))
  await broker.use(async (channel) => {
    for (const { queue, pattern } of undone)
      for (const exchange of exchanges) await channel.unbindQueue(queue, exchange, pattern)
  })
}

/** Sends a message to handlers elsewhere. If it names none, its event may have reached their queues by itself. */
export async function forward(mail: Mail, letter: Letter, progress: Progress, places: readonly Place[]): Promise<void> {
  const isDoubtful = progress.isDoubtful || progress.handler === undefined
  for (const { to, handler } of places) await mail.later(letter, to, { ...progress, handler, isDoubtful }, 0)
}

/**
 * What waits in the queue of a group that goes on is also for the handlers that have just left it: each message becomes one for the
 * group, and one for each of those. To be called before this process takes anything from the queue.
 */
export async function divide(
  broker: Broker,
  mail: Mail,
  sources: readonly Source[],
  all: readonly Move[],
): Promise<void> {
  const moves = all.filter(({ isNew }) => isNew)
  for (const source of sources) {
    const { queue } = source
    if (!moves.some(({ from, to }) => from.queue === queue && to !== source)) continue
    await broker.use(async (channel) => {
      for (let left = (await channel.checkQueue(queue)).messageCount; left > 0; left--) {
        const message = await channel.get(queue)
        if (message === false) return
        const letter = { delivery: letterOf(message), event: undefined }
        const known = progressOf(letter.delivery)
        const progress = { ...known, isDoubtful: known.isDoubtful || message.fields.redelivered }
        const places = placesOf(progress, queue, sources, moves)
        await forward(mail, letter, progress, places)
        const isOwn = source.handlers.some(({ pattern }) => matches(pattern, progress.type))
        if (places.length === 0 || (progress.handler === undefined && isOwn))
          await mail.later(letter, source, progress, 0)
        channel.ack(message)
      }
    })
  }
}
