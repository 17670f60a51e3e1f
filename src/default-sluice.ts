/** The Sluice that `task.send` uses unless another one is given: opened from the environment, at its first use. */
import { fstatSync } from 'node:fs'
import { UsageError } from './core/errors.ts'
import { Sluice } from './sluice.ts'
import { type Emitter, provideEmitter } from './events/event.ts'
import { provideSender, type Sender } from './tasks/task.ts'

let shared: Promise<Sluice> | undefined
/**
 * The argument of `useSluice`, in any copy of this package: in a workspace the program may have one copy, and the package with its
 * tasks another, which would otherwise open a store of its own.
 */
const chosen = Symbol.for('sluice.chosen')
/** Why there is no Sluice to use, in any copy of this package. */
const refused = Symbol.for('sluice.refused')
const everyCopy = globalThis as { [chosen]?: Sluice | undefined; [refused]?: UsageError | undefined }
/** Sends under way, and whether takes, or the Sluice itself, are used: these need the store for longer. */
let sends = 0
let isHeld = false

/** Opens the Sluice that `task.send` uses by default, at first use, from the environment. */
async function sharedSluice(): Promise<Sluice> {
  if (everyCopy[refused] !== undefined) throw everyCopy[refused]
  shared ??= Sluice.open().then(
    (sluice) => {
      if (sluice.embedded) closeWhenIdle(sluice)
      return sluice
    },
    (error: unknown) => {
      shared = undefined
      throw error
    },
  )
  return await shared
}

/** Makes `task.send` and the like fail from now on: this process has no store, and must not open one that nobody works on. */
export function refuseSluice(why: UsageError): void {
  everyCopy[refused] = why
}

/** Returns what sends to the shared Sluice, and counts what is under way. */
async function sharedSender(): Promise<Sender> {
  const sluice = await sharedSluice()
  return {
    send: (task, input, options) => countSend(() => sluice.send(task, input, options)),
    sendMany: (task, inputs, options) => countSend(() => sluice.sendMany(task, inputs, options)),
    get takes() {
      isHeld = true
      return sluice.takes
    },
  }
}

/** As `sharedSender`, for events. */
async function sharedEmitter(): Promise<Emitter> {
  const { events } = await sharedSluice()
  return {
    emit: (event, payload, options) => countSend(() => events.emit(event, payload, options)),
    emitMany: (event, payloads, options) => countSend(() => events.emitMany(event, payloads, options)),
  }
}

async function countSend<T>(body: () => Promise<T>): Promise<T> {
  sends++
  try {
    return await body()
  } finally {
    sends--
  }
}

/** How often it is checked whether only the embedded engine keeps this process alive, in ms. */
const lookMs = 100
/** Handles that do not count as the program's work: the engine has a timer of its own, and a terminal is always there. */
const notWork = new Set(['Timeout', 'Immediate', 'TTYWrap'])

/**
 * Closes an embedded store as soon as only its engine keeps this process alive, so that a script that only sends ends. If
 * the program sends again after that, the store is opened again.
 */
function closeWhenIdle(sluice: Sluice): void {
  const timer = setInterval(() => {
    if (sends > 0 || isHeld || !sluice.owner || isWorking()) return
    clearInterval(timer)
    shared = undefined
    void sluice.close()
  }, lookMs)
  timer.unref()
}

/** True if something besides the engine and the standard streams keeps this process alive. */
function isWorking(): boolean {
  const others = process.getActiveResourcesInfo().filter((each) => !notWork.has(each))
  // A standard stream that is a pipe counts as a resource once it was used, although it keeps no process alive.
  const streams = [0, 1, 2].filter((fd) => isPipe(fd)).length
  const pipes = others.filter((each) => each === 'PipeWrap').length
  return others.length > Math.min(pipes, streams)
}

function isPipe(fd: number): boolean {
  try {
    const at = fstatSync(fd)
    return at.isFIFO() || at.isSocket()
  } catch {
    return false // it is closed
  }
}

/**
 * Makes `task.send`, `event.emit` and `limit.take` go to this Sluice from now on; undefined: to one opened from the environment at
 * first use.
 * @throws UsageError SLUICE_BAD_OPTION for what is no Sluice, such as a promise that was not awaited
 */
export function useSluice(sluice: Sluice | undefined): void {
  if (sluice !== undefined && typeof sluice?.send !== 'function')
    throw new UsageError('SLUICE_BAD_OPTION', '`useSluice` needs a Sluice: useSluice(await Sluice.open(…))')
  everyCopy[chosen] = sluice
}

/** Returns what `useSluice` was given last; undefined: nothing. */
export function chosenSluice(): Sluice | undefined {
  return everyCopy[chosen]
}

/**
 * Returns the Sluice that `task.send` uses: that of `useSluice`; in the command line, and so in handlers that it runs, its own; in
 * the test kit the test's; else one opened from the environment, which stays open until you close it.
 * @throws as `Sluice.open`
 * @example const { count } = await (await currentSluice()).jobs.count({ tag: 'import-7' })
 */
export async function currentSluice(): Promise<Sluice> {
  const given = chosenSluice()
  if (given !== undefined) return given
  isHeld = true
  return sharedSluice()
}

provideSender(() => chosenSluice() ?? sharedSender())
provideEmitter(() => chosenSluice()?.events ?? sharedEmitter())
