/**
 * Handlers that are in another group than before, or have another pattern. Their former queues get nothing new for them; messages
 * that wait there go to their present queues.
 */
import type { GetMessage } from 'amqplib'
import type { Broker } from '../amqp/broker.ts'
import type { EventHandler } from '../events/handler.ts'
import { matches, overlap } from '../events/names.ts'
import { receivedOf } from './archive.ts'
import { type Entry, type FormerPlacing, type Placing, placingsOf } from './entries.ts'
import type { ReceivedEvent, Republisher } from './republisher.ts'
import { type Progress, progressOf } from './message.ts'
import type { Source } from './source.ts'

/** A handler that is elsewhere now. */
export interface Move {
  readonly from: Placing
  readonly to: Source
  /** Its present name. */
  readonly handler: string
  /** True if the process that started last still had it there. */
  readonly isNew: boolean
  /** When it was found to have left, in wall-clock ms. */
  readonly leftMs: number
  /**
   * True if it keeps its former binding for now: earlier processes, which lack it in its present queue, may take its
   * events from there.
   */
  readonly isBindingKept: boolean
}

/** How many messages of a queue are divided at a time: other services that start wait meanwhile. */
const portion = 100

/** The differences between the bindings of earlier processes and the present groups. */
export interface Moves {
  readonly moves: readonly Move[]
  /** Bindings that nobody needs any more. */
  readonly undone: readonly Placing[]
  /** For the entry: where the service's handlers are. */
  readonly handlers: readonly Placing[]
  /** For the entry: other handlers that earlier processes have bound. Other programs may serve them under the same name. */
  readonly former: readonly FormerPlacing[]
}

/** The queue and handler that a message goes to. */
export interface Place {
  to: Source
  handler: string
}

/**
 * How long processes of the release before may run. A process whose handlers left their queues within that time belongs
 * to that release, and removes no bindings of the present one.
 */
export const replacingMs = 3_600_000

/** Returns the handlers that have moved since an entry was written. */
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
  const recent = [...left.values()].filter((each) => nowMs - Date.parse(each.leftAt) < replacingMs)
  const moves = others.flatMap((from): Move[] => {
    const found = placeOf(from.handler, sources)
    if (found === undefined) return []
    const { source: to, handler } = found
    const isBindingKept =
      recent.includes(from) && from.queue !== to.queue && recent.some((each) => isInTheWay(each, from, to))
    const leftMs = Date.parse(from.leftAt)
    return [{ from, to, handler: handler.name, isNew: last.has(textOf(from)), leftMs, isBindingKept }]
  })
  const gone = new Set(
    moves.filter(({ handler, isBindingKept }) => !isBindingKept && !replaced.has(handler)).map(({ from }) => from),
  )
  const needed = new Set([...present, ...others.filter((each) => !gone.has(each))].map(bindingOf))
  const isKept = ({ handler }: Placing) => replaced.has(handler)
  const handlers = [...present.filter((each) => !isReplaced(each)), ...[...last.values()].filter(isKept)]
  const recorded = new Set(handlers.map(textOf))
  return {
    moves,
    undone: [...gone].filter((each) => !needed.has(bindingOf(each))),
    handlers,
    former: [...left.values()].filter((each) => !recorded.has(textOf(each))),
  }
}

/**
 * Returns whether a process that has the handler `each` in the queue, but not the handler that moves there, may take
 * the latter's events from it.
 */
function isInTheWay(each: Placing, from: Placing, to: Source): boolean {
  return each.queue === to.queue && each.handler !== from.handler && overlap(each.pattern, from.pattern)
}

/** True if these groups are those of the process that started last. */
export function isOfLast({ handlers }: Pick<Entry, 'handlers'>, sources: readonly Source[]): boolean {
  const last = new Set(handlers.map(textOf))
  return placingsOf(sources).every((each) => last.has(textOf(each)))
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
  { handler, type, elsewhere = [] }: Progress,
  queue: string,
  sources: readonly Source[],
  moves: readonly Move[],
): Place[] {
  if (handler !== undefined) {
    const place = placeOf(handler, sources)
    return place === undefined || place.source.queue === queue ? [] : [{ to: place.source, handler }]
  }
  const found = moves.filter(
    ({ from, to, handler: name }) =>
      from.queue === queue && to.queue !== queue && matches(from.pattern, type) && !elsewhere.includes(name),
  )
  return [...new Map(found.map(({ to, handler: name }) => [name, { to, handler: name }])).values()]
}

/**
 * Returns the further queues to which a message goes, besides the handlers of its own queue. This is for messages that
 * `divide` did not see: the message was in the queue of earlier settings, a process of the release before was lost with
 * it, or the queue is still bound for handlers that have left it.
 */
export function leftBehind(
  progress: Progress,
  { source, queue, isBack }: { source: Source; queue: string; isBack: boolean },
  moves: readonly Move[],
  nowMs: number,
): Place[] {
  const isOwn = source.handlers.some(({ pattern }) => matches(pattern, progress.type))
  // A message for none of its handlers goes to all others anyway.
  if (moves.length === 0 || progress.handler !== undefined || !isOwn) return []
  const wanted = moves.filter(
    ({ to, leftMs, isBindingKept }) =>
      to !== source && (queue !== source.queue || isBindingKept || (isBack && nowMs - leftMs < replacingMs)),
  )
  return placesOf(progress, queue, [], wanted)
}

/** Returns the history of a message after it was sent to these handlers. */
export function sentOn(progress: Progress, places: readonly Place[]): Progress {
  const { elsewhere = [] } = progress
  return { ...progress, elsewhere: [...elsewhere, ...places.map(({ handler }) => handler)] }
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

/**
 * Sends a message to handlers elsewhere. It is marked as doubtful if it names no handler, because its event may have
 * reached their queues by itself.
 */
export async function forward(
  republisher: Republisher,
  received: ReceivedEvent,
  progress: Progress,
  places: readonly Place[],
): Promise<void> {
  const { elsewhere: _, ...known } = progress
  const isDoubtful = progress.isDoubtful || progress.handler === undefined
  await Promise.all(
    places.map(({ to, handler }) => republisher.returnLater(received, to, { ...known, handler, isDoubtful }, 0)),
  )
}

/**
 * Divides the messages that wait in the queue of a group among the group and the handlers that have just left it: each
 * message becomes one for the group, and one for each of these. To be called before this process takes messages from
 * the queue.
 */
export async function divide(
  broker: Broker,
  republisher: Republisher,
  sources: readonly Source[],
  all: readonly Move[],
): Promise<void> {
  const moves = all.filter(({ isNew }) => isNew)
  for (const source of sources) {
    const { queue } = source
    if (!moves.some(({ from, to }) => from.queue === queue && to !== source)) continue
    await broker.use(async (channel) => {
      const moveOne = async (message: GetMessage) => {
        const received = { incoming: receivedOf(message), event: undefined }
        const known = progressOf(received.incoming)
        const progress = { ...known, isDoubtful: known.isDoubtful || message.fields.redelivered }
        const places = placesOf(progress, queue, sources, moves)
        const isOwn = source.handlers.some(({ pattern }) => matches(pattern, progress.type))
        const sent = [forward(republisher, received, progress, places)]
        if (places.length === 0 || (progress.handler === undefined && isOwn))
          sent.push(republisher.returnLater(received, source, sentOn(progress, places), 0))
        await Promise.all(sent)
        channel.ack(message)
      }
      for (let left = (await channel.checkQueue(queue)).messageCount; left > 0; left -= portion) {
        const reads = Array.from({ length: Math.min(left, portion) }, () => channel.get(queue))
        const messages = (await Promise.all(reads)).filter((message) => message !== false)
        await Promise.all(messages.map(moveOne))
        if (messages.length < reads.length) return
      }
    })
  }
}
