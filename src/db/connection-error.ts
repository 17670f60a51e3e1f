/** Errors of a connection to PostgreSQL: which mean that the outcome is unknown, and how they are reported. */
import { connect, Socket } from 'node:net'
import { driver } from './driver.ts'
import { codeOf, StoreError, UsageError, textOfError } from '../core/errors.ts'

/** SQLSTATEs that mean that the connection, not the statement, failed. */
const lostStates = /^(08...|57P0[123]|53300)$/

/**
 * SQLSTATEs that a connection gets again and again: its server takes no writes, as a former primary whose name leads elsewhere by now
 * (25006), or its prepared statements are gone (26000).
 */
const staleStates = /^(25006|26000)$/

/** Codes of Node for a failed socket. */
const lostCodes = /^(E[A-Z]+|EAI_[A-Z]+|ERR_(STREAM|SOCKET|SSL|TLS)_\w+)$/

/** Messages of node-postgres for a failed connection, without a code. */
const lostWords =
  /^(Connection terminated|Client (has encountered a connection error|was closed) and is not queryable|Query read timeout|Received unexpected )/

/** Message of node-postgres for a request that found all connections of the pool in use until its time was over. */
const allInUse = 'timeout exceeded when trying to connect'

/** Messages of node-postgres for a server that accepts a connection, and sends nothing in time. */
const silentWords = /^(Connection terminated due to connection timeout|timeout expired)/

/** Node's codes for a certificate that it does not accept. */
const untrusted = /CERT|_SIGNATURE$/

/** Message of node-postgres for a server without TLS. */
const withoutTls = 'The server does not support SSL connections'

/** Message of node-postgres for a server that wants a password, if there is none. */
const withoutPassword = /^SASL: .* client password must be/

/** Messages of node-postgres for a server that answers a wish for TLS with neither yes nor no, or sends what is no message. */
const foreignWords = /^(There was an error establishing an SSL connection|received invalid response)/

/** The first bytes of a server that is not PostgreSQL. */
class ForeignError extends Error {}

const ofOwner = 'the owner of '

/** A statement without a reply in time. */
export class LateError extends Error {}

/**
 * Returns a socket for node-postgres, which would take any bytes for the beginning of a long message, and wait for its end. Where
 * TLS is wanted a server sends one letter first, which node-postgres checks itself.
 */
export function checkedSocket({ ssl }: { ssl?: unknown } = {}): Socket {
  const socket = new Socket()
  if (ssl) return socket
  return socket.once('data', (first) => {
    if (!isGreeting(first)) socket.destroy(new ForeignError(beginning(first)))
  })
}

/** Returns true for the letter and the length of a message with which a PostgreSQL server begins; they are as in libpq. */
function isGreeting(first: Buffer): boolean {
  const letter = String.fromCharCode(first[0] ?? 0)
  return letter === 'E' || ('RNv'.includes(letter) && (first.length < 5 || first.readUInt32BE(1) < 30_000))
}

/** Returns true when an error of a statement means that the connection failed, so that the outcome is unknown. */
export function isLost(error: unknown): boolean {
  if (error instanceof LateError) return true
  if (!(error instanceof Error)) return false
  const { code } = error as { code?: unknown }
  if (error instanceof driver.DatabaseError) return lostStates.test(String(code))
  return typeof code === 'string' ? lostCodes.test(code) : lostWords.test(error.message)
}

/** Returns true for the answer of an embedded directory's owner that closes: it has not run the statement. */
export function wasNotRun(error: unknown): boolean {
  return error instanceof driver.DatabaseError && error.code === '57P01'
}

/** Returns true when a statement failed that may succeed on a new connection: its connection is not used any more. */
export function isStale(error: unknown): boolean {
  return error instanceof driver.DatabaseError && staleStates.test(String(error.code))
}

/** Returns the result, or a LateError. If this process was stopped, the reply may have arrived: it is read first. */
export function resolveInTime<T>(answer: Promise<T>, ms: number): Promise<T> {
  return new Promise((resolve, reject) => {
    const late = () => reject(new LateError('no answer in time'))
    const timer = setTimeout(() => setImmediate(late), ms)
    const over = () => clearTimeout(timer)
    answer.finally(over).then(resolve, reject)
  })
}

/** How long a server that was silent has for its answer to a line of text, in ms. */
const lineMs = 1_000

/**
 * As `unreachableError`, for a connection that could not be made. Redis waits for the end of a line, so it is silent until it gets
 * one; PostgreSQL closes the connection then.
 */
export async function unconnectedError(where: string, url: string, cause: unknown): Promise<StoreError> {
  const first = silentWords.test(textOfError(cause)) ? await answerToLine(url) : undefined
  return unreachableError(where, first === undefined || isGreeting(first) ? cause : new ForeignError(beginning(first)))
}

const beginning = (first: Buffer) => `it begins with ${JSON.stringify(first.toString('latin1', 0, 20))}`

/** Resolves to what a server answers to a line of text; undefined: nothing, or it has no address of its own. */
function answerToLine(url: string): Promise<Buffer | undefined> {
  const { hostname, port, searchParams } = new URL(url)
  if (hostname === '' || searchParams.has('host')) return Promise.resolve(undefined)
  return new Promise((resolve) => {
    const socket = connect(Number(port || 5432), hostname, () => socket.write('PING\r\n'))
    socket.once('data', resolve).once('close', () => resolve(undefined))
    socket.on('error', () => {}).on('data', () => socket.destroy())
    socket.setTimeout(lineMs, () => socket.destroy())
  })
}

/** Returns the error for a server that did not answer, or let nobody in. */
export function unreachableError(where: string, cause: unknown): StoreError {
  return new StoreError('SLUICE_STORE_UNREACHABLE', describeFailure(where, cause), { cause })
}

/** The error for a statement that no owner of an embedded directory has run, because each of them was closing. */
export function closingError(where: string, cause: unknown): StoreError {
  const text = `${where} closed before it ran a statement, and so did each that took its place, for seconds; nothing was done: keep one process of this directory running`
  return new StoreError('SLUICE_STORE_UNREACHABLE', text, { cause })
}

function describeFailure(where: string, cause: unknown): string {
  const why = textOfError(cause)
  const refused = cause instanceof driver.DatabaseError ? String(cause.code) : ''
  const answers = `PostgreSQL at ${where} answers, but`
  if (cause instanceof ForeignError || foreignWords.test(why))
    return `what answers at ${where} does not speak PostgreSQL (${why}); correct host and port in DATABASE_URL`
  if (refused === '3D000')
    return `${answers} the database does not exist (${why}); create it (\`createdb\`), or correct DATABASE_URL`
  if (refused === '53300')
    return `${answers} has no connection free for this process (${why}); raise max_connections, use a pooler, or give a lower \`connections\` to each Sluice.open`
  if (withoutPassword.test(why)) return `${answers} wants a password; write it into DATABASE_URL, or set PGPASSWORD`
  if (refused.startsWith('28'))
    return `${answers} refuses the login (${why}); correct the user and password in DATABASE_URL`
  if (why === withoutTls || untrusted.test(String(codeOf(cause))))
    return `${answers} not with TLS as it is wanted here (${why}); correct in DATABASE_URL what is wanted, and whom to trust: \`?sslmode=verify-full&sslrootcert=<file>\``
  if (where.startsWith(ofOwner))
    return `${where} did not answer (${why}); another process that uses this directory takes its place`
  if (why === allInUse)
    return `all connections of this process to PostgreSQL at ${where} were in use for seconds; make fewer requests at once, or give \`connections\` to Sluice.open; if that is not the cause, check that the server answers`
  return `PostgreSQL at ${where} did not answer (${why}); check that it runs and that DATABASE_URL is right`
}

/** Returns host:port/database of a URL, without credentials. @param isOwner it is the owner of an embedded directory */
export function describe(url: string, isOwner: boolean): string {
  try {
    const parsed = new URL(url)
    const socket = parsed.searchParams.get('host')
    if (socket !== null) return isOwner ? `${ofOwner}${socket}` : `the socket in ${socket}`
    return `${parsed.hostname || 'localhost'}:${parsed.port || '5432'}${parsed.pathname}`
  } catch {
    throw new UsageError(
      'SLUICE_BAD_URL',
      'the database URL is malformed; it should look like postgres://user:password@host:5432/database',
    )
  }
}
