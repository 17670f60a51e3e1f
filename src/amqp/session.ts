/** One connection to a RabbitMQ, by amqplib, from its opening to its loss. */
import type { Duplex, Writable } from 'node:stream'
import type { ChannelModel } from 'amqplib'
import { systemClock } from '../core/clock.ts'
import { StoreError, UsageError, codeOf } from '../core/errors.ts'
import type { BrokerAddress } from './address.ts'
import { withReadableHeaders } from './foreign-headers.ts'

/** An open connection. */
export interface Session {
  readonly model: ChannelModel
  /** Resolves to the cause when the connection is lost, or closed. Never rejects. */
  readonly lost: Promise<Error>
  /** Ends it at once, without a close that the server confirms, as if it were lost. */
  drop(cause: Error): void
  /** Closes it. */
  end(): Promise<void>
}

/** The parts of amqplib's connection that its types do not show. */
interface Inside {
  stream: Duplex
  rest: Buffer
  recvFrame(): unknown
  /** Ends the connection, and all that waits for an answer, unless it has ended before. */
  onSocketError(cause: Error): void
}

const connectMaxMs = 5_000
const endMaxMs = 2_000
/** If a connection ends, it does so within this time after the errors of its channels. */
const causeMaxMs = 1_000
/** The code with which the server's administrator, or its shutdown, closes a connection. */
const forced = 320
/** The code with which the server closes a connection because a part of it failed: it may have the messages. */
export const internalError = 541

/** The client cannot write a command: a name is too long, for example. It would fail each time. */
class UnwritableError extends Error {}

/**
 * The server's code of a refusal: a declaration, a message or a login that it does not accept; 0: a command that the client cannot
 * write. Undefined: nothing was refused.
 */
export function refusalOf(error: unknown): number | undefined {
  if (error instanceof UnwritableError) return 0
  const code = codeOf(error)
  return typeof code === 'number' && code >= 300 && code !== forced ? code : undefined
}

/** Resolves to the cause if the connection is lost now, or a moment later; undefined: it is there. */
export async function lossOf({ lost }: Pick<Session, 'lost'>): Promise<Error | undefined> {
  return (await Promise.race([lost, systemClock.sleep(causeMaxMs, undefined, false)])) ?? undefined
}

/**
 * Resolves to the cause of a failed operation. If the connection was lost, that is the cause of the loss, with the
 * server's code if the server closed the connection.
 */
export async function causeOf(error: unknown, session: Session): Promise<Error> {
  if (refusalOf(error) !== undefined) return error as Error
  if (error instanceof TypeError || error instanceof RangeError) return new UnwritableError(error.message)
  return (await lossOf(session)) ?? (error as Error)
}

/**
 * Opens a connection to one of the address's servers. `name` is what the server's tools show; `nth` selects the server.
 * @throws UsageError SLUICE_MISSING_PEER, SLUICE_BROKER_REFUSED; StoreError SLUICE_BROKER_UNREACHABLE
 */
export async function openSession(address: BrokerAddress, name: string, nth: number): Promise<Session> {
  const { hosts, username, password, vhost, heartbeatS: heartbeat, tls } = address
  const { host: hostname, port } = hosts[nth % hosts.length] ?? { host: '', port: 0 }
  const protocol = tls === undefined ? 'amqp' : 'amqps'
  const connect = await loadConnect()
  const clientProperties = { connection_name: name }
  const open = () =>
    connect(
      { protocol, hostname, port, username, password, vhost, heartbeat },
      { ...tls, noDelay: true, timeout: connectMaxMs, clientProperties },
    )
  const model = await open()
    // A server that is slow to open a connection sends a heartbeat before its answer, which amqplib takes for that.
    .catch((error: Error) => (error.message.includes('got <Heartbeat>') ? open() : Promise.reject(error)))
    .catch((error: Error) => {
      throw explainError(error, `${hostname}:${port}`, { username, vhost })
    })
  return createSession(model)
}

function createSession(model: ChannelModel): Session {
  const inside = model.connection as unknown as Inside
  const { stream } = inside
  readForeignHeaders(inside)
  writeTogether(stream)
  let cause: Error | undefined
  const lost = new Promise<Error>((resolve) => {
    model.on('error', (error) => (cause = error))
    model.on('close', (error) => {
      resolve(error ?? cause ?? new Error('the connection was closed'))
      // A connection given up as half-open would otherwise stay, and keep the process alive.
      stream.destroy()
    })
    // amqplib does not notice a socket that is closed without an end or an error: who waits for an answer would wait until it misses heartbeats.
    stream.once('close', () => inside.onSocketError(cause ?? new Error('the connection was closed')))
  })
  return {
    model,
    lost,
    drop: (why) => void stream.destroy(why),
    async end() {
      const cancel = systemClock.after(endMaxMs, () =>
        stream.destroy(new Error('the server did not confirm the close')),
      )
      // amqplib waits for ever for the server to confirm the close, also on a connection that is lost.
      await Promise.race([model.close().catch(() => {}), lost])
      cancel()
      stream.destroy()
    },
  }
}

/**
 * Makes a stream write in one call the data that it is given in one turn. amqplib writes each frame by itself, so that
 * each acknowledgement would be a system call here, and wake the server.
 */
export function writeTogether(stream: Writable): void {
  const write = stream.write.bind(stream)
  stream.write = (...args: unknown[]) => {
    if (stream.writableCorked === 0) {
      stream.cork()
      process.nextTick(() => stream.uncork())
    }
    return (write as (...args: unknown[]) => boolean)(...args)
  }
}

/** Reads frames as amqplib does, and one that it cannot decode again with readable headers. */
function readForeignHeaders(inside: Inside): void {
  const receive = inside.recvFrame
  inside.recvFrame = function () {
    const bytes = this.rest
    try {
      return receive.call(this)
    } catch (error) {
      const changed = withReadableHeaders(bytes)
      if (changed === undefined) throw error
      this.rest = changed
      return receive.call(this)
    }
  }
}

function explainError(
  error: Error & { code?: unknown },
  at: string,
  { username, vhost }: Pick<BrokerAddress, 'username' | 'vhost'>,
): Error {
  const text = error.message || String(error.code)
  // amqplib hides the server's reason if that closes the connection at its opening, which it does for a virtual host.
  const what = /got <ConnectionClose|NOT.ALLOWED|\b530\b/.test(text)
    ? `does not let the user "${username}" into the virtual host "${vhost}": there is none of this name (rabbitmqctl list_vhosts), the user has no permissions there (rabbitmqctl list_permissions -p ${vhost}), or a limit of connections is reached`
    : /ACCESS.REFUSED|\b403\b|SASL mechanism/.test(text)
      ? `refuses the user "${username}", or its password: ${text}`
      : undefined
  if (what === undefined)
    return new StoreError('SLUICE_BROKER_UNREACHABLE', `there is no RabbitMQ at ${at}: ${text}`, { cause: error })
  return new UsageError('SLUICE_BROKER_REFUSED', `the RabbitMQ at ${at} ${what} (AMQP_URL)`, { cause: error })
}

async function loadConnect(): Promise<typeof import('amqplib').connect> {
  try {
    return (await import('amqplib')).connect
  } catch (error) {
    throw new UsageError('SLUICE_MISSING_PEER', 'a broker needs the package amqplib: npm install amqplib@2', {
      cause: error,
    })
  }
}
