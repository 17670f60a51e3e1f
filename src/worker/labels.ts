/** A worker's labels; limits may use them as keys (`by: label('ip')`). */
import { createSocket, type SocketType } from 'node:dgram'
import { hostname } from 'node:os'
import { UsageError } from '../core/errors.ts'
import { env } from '../db/open.ts'
import { checkKey } from '../limits/limit.ts'
import { checkLabel } from '../limits/pool.ts'

/** Labels by their names. */
export type Labels = Readonly<Record<string, string>>

const labelsMax = 32
/** Addresses reserved for documentation: the routing table gives the source address for them, and nothing is sent. */
const nowhere = [
  ['udp4', '192.0.2.1'],
  ['udp6', '2001:db8::1'],
] as const

/**
 * Returns a worker's labels: `host` and `ip`, which all workers of a machine share, then those of SLUICE_LABELS
 * (`ip=203.0.113.7,egress=a`), then those given.
 * @throws UsageError SLUICE_BAD_LABEL
 */
export async function labelsOf(given: Labels = {}): Promise<Labels> {
  const named = givenLabels(given)
  const all: Labels = {
    host: hostname(),
    ...('ip' in named ? {} : { ip: (await findAddress()) ?? hostname() }),
    ...named,
  }
  return checkLabels(all)
}

/** Returns the labels of SLUICE_LABELS, and those given. @throws UsageError SLUICE_BAD_LABEL */
export function givenLabels(given: Labels = {}): Labels {
  return checkLabels({ ...fromEnv(), ...given })
}

/** Checks labels and returns them. @throws UsageError SLUICE_BAD_LABEL */
export function checkLabels(labels: Labels): Labels {
  const entries = Object.entries(labels)
  if (entries.length > labelsMax) throw new UsageError('SLUICE_BAD_LABEL', `a worker has ${labelsMax} labels at most`)
  for (const [name, value] of entries) {
    checkLabel(name)
    if (typeof value !== 'string' || value === '')
      throw new UsageError('SLUICE_BAD_LABEL', `label ${name} needs a value: a text of 1 to 512 characters`)
    checkKey(name, value)
  }
  return labels
}

/** Reads `name=value`. @throws UsageError SLUICE_BAD_LABEL */
export function readLabel(text: string): [string, string] {
  const at = text.indexOf('=')
  if (at > 0 && at < text.length - 1) return [checkLabel(text.slice(0, at).trim()), text.slice(at + 1).trim()]
  throw new UsageError('SLUICE_BAD_LABEL', `"${text}" is not a label; write it as name=value, such as ip=203.0.113.7`)
}

function fromEnv(): Labels {
  const texts = env('SLUICE_LABELS')?.split(',') ?? []
  return Object.fromEntries(texts.map((text) => readLabel(text.trim())))
}

/** Returns the address with which this machine would reach the network; undefined: it has no route. */
async function findAddress(): Promise<string | undefined> {
  for (const [type, to] of nowhere) {
    const found = await findSourceAddress(type, to)
    if (found !== undefined) return found
  }
  return undefined
}

function findSourceAddress(type: SocketType, to: string): Promise<string | undefined> {
  return new Promise((resolve) => {
    const socket = createSocket(type)
    const end = (found: string | undefined) => {
      socket.close()
      resolve(found)
    }
    socket.once('error', () => end(undefined))
    // A callback of `connect` would be called for a failure, too.
    socket.once('connect', () => end(socket.address().address))
    socket.connect(9, to)
  })
}
