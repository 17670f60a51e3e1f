/**
 * Decides which process owns a data directory. Node has no flock, and a process id proves nothing across containers, so a
 * claim is a numbered file that names a Unix socket on which its owner listens: the kernel closes that socket with the
 * process and accepts connections on it even while the process is stopped or busy.
 *
 * A claim n+1 is published (by a hard link, which fails if the number is taken) only by a process that already listens
 * and that saw claim n, the highest, refuse connections. The highest claim is never removed, so no process can take a
 * number below that of a live owner; a process that finds a higher claim after publishing its own withdraws. An opener
 * that dies at any point leaves at worst one more dead claim. Windows: a named pipe with the directory's name, which
 * exists once (not tested there).
 */
import { createHash, randomBytes } from 'node:crypto'
import fs from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { StoreError, UsageError } from '../core/errors.ts'

/** A process that owns a directory. */
export interface Owner {
  /** Passes on each client that connects, including those that came before this call. Sockets are paused. */
  onClient(serve: (socket: net.Socket) => void): void
  /** Releases the directory. Call it when nothing writes to the directory any more. */
  release(): Promise<void>
}

/** How a client reaches the live owner of a directory, in the fields of node-postgres. */
export interface ConnectInfo {
  host: string
  port: number
  user: string
  database: string
}

/** The content of a claim: its maker. */
interface Claim {
  pid: number
  host: string
  machine: string
  boot: string
  socket: string
  released: boolean
}

const port = 5432
const publicName = `.s.PGSQL.${port}`
/** The shortest limit of a socket's path of all systems (macOS 104, Linux 108, each with a zero at the end). */
const maxPathBytes = 100
const claimsKept = 100
const claimName = /^claim-(\d{12})\.json$/
const windows = process.platform === 'win32'

/**
 * Makes this process the one owner of `dir`, which must exist, until it releases the directory or dies.
 * @throws UsageError SLUICE_STORE_OWNED when a live process owns it, or when that cannot be determined (then
 * `SLUICE_TAKE_OVER=1` decides; it never overrides an owner that answers).
 */
export async function takeOwnership(dir: string): Promise<Owner> {
  const home = fs.realpathSync(dir)
  if (windows) return await ownPipe(home)
  const room = path.join(home, 'owner')
  fs.mkdirSync(room, { recursive: true, mode: 0o700 })
  const line = await listen(room, `${randomBytes(8).toString('hex')}.sock`)
  let number: number | undefined
  const release = async () => {
    let isReleased = number === undefined
    // A claim without a socket that is not marked as released never counts as dead. So if the mark cannot be written
    // (the disk may be full), the socket stays.
    try {
      if (number !== undefined) write(room, number, { ...describeSelf(line.name), released: true })
      isReleased = true
    } catch {}
    await line.close()
    if (isReleased) fs.rmSync(path.join(room, line.name), { force: true })
  }
  try {
    number = await claim(home, room, line.name)
    publish(home, room, line.name)
    sweep(room, number)
    return { onClient: line.onClient, release }
  } catch (error) {
    await release()
    throw error
  }
}

/** Returns how to reach the live owner of `dir`; undefined when no process owns it. */
export async function connectInfo(dir: string): Promise<ConnectInfo | undefined> {
  if (!fs.existsSync(dir)) return undefined
  const home = fs.realpathSync(dir)
  const user = { user: 'postgres', database: 'postgres' }
  if (windows) return (await dialSocket(pipeOf(home))) === 'alive' ? { host: pipeOf(home), port, ...user } : undefined
  const room = path.join(home, 'owner')
  const top = highest(room)
  if (top === 0) return undefined
  const found = read(room, top)
  if (found === undefined || found.released || (await dial(path.join(room, found.socket))) !== 'alive') return undefined
  return { host: linkShortPath(home), port, ...user }
}

async function claim(home: string, room: string, socket: string): Promise<number> {
  for (;;) {
    const top = highest(room)
    if (top > 0 && !(await isDead(home, room, top))) continue
    const draft = path.join(room, `${socket}.draft`)
    writeSynced(draft, JSON.stringify(describeSelf(socket)))
    try {
      fs.linkSync(draft, path.join(room, nameOf(top + 1)))
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
      continue
    } finally {
      fs.rmSync(draft, { force: true })
    }
    // The listing of the directory may have been so old that this number was already used and deleted.
    if (highest(room) === top + 1) return top + 1
    write(room, top + 1, { ...describeSelf(socket), released: true })
  }
}

/**
 * Returns true if the owner is certainly dead, false if the directory has changed meanwhile and must be read again.
 * Throws when the owner lives, or may live.
 */
async function isDead(home: string, room: string, top: number): Promise<boolean> {
  const found = read(room, top)
  const answer = found === undefined ? 'unknown' : await dial(path.join(room, found.socket))
  const who = found === undefined ? 'an unknown process' : `process ${found.pid} on ${found.host}`
  if (answer === 'alive')
    throw new UsageError(
      'SLUICE_STORE_OWNED',
      `${home} is in use by ${who}; stop that process, or connect through it (its socket is in that directory)`,
    )
  if (found?.released) return true
  const here = describeSelf('')
  const sameKernel =
    found !== undefined && found.boot === here.boot && (here.boot !== '' || found.machine === here.machine)
  const rebooted = found !== undefined && found.boot !== here.boot && found.machine === here.machine
  if (answer === 'refused' && (sameKernel || rebooted)) return true
  // A new owner deletes the sockets of earlier ones, maybe between the reads above.
  if (highest(room) !== top) return false
  if (process.env['SLUICE_TAKE_OVER'] === '1') return true
  throw new UsageError(
    'SLUICE_STORE_OWNED',
    `${home} was last owned by ${who}, and this process cannot determine whether that one still runs; make sure that it does not, then start once with SLUICE_TAKE_OVER=1`,
  )
}

/** `refused`: according to this kernel, no process listens. A missing socket or any other error proves nothing. */
type Answer = 'alive' | 'refused' | 'unknown'

async function dial(socket: string): Promise<Answer> {
  return await withShortPath(socket, dialSocket)
}

function dialSocket(to: string): Promise<Answer> {
  return new Promise((resolve) => {
    const connection = net.connect(to)
    connection.once('connect', () => {
      connection.destroy()
      resolve('alive')
    })
    connection.once('error', (error: NodeJS.ErrnoException) => {
      // A full backlog means that the owner lives: it is busy or stopped.
      resolve(error.code === 'EAGAIN' ? 'alive' : error.code === 'ECONNREFUSED' ? 'refused' : 'unknown')
    })
  })
}

interface Listening {
  name: string
  onClient(serve: (socket: net.Socket) => void): void
  close(): Promise<void>
}

async function listen(room: string, name: string): Promise<Listening> {
  return await withShortPath(path.join(room, `${name}.bound`), async (at) => {
    const line = await listenAt(at, name)
    fs.chmodSync(at, 0o600)
    // Renamed, because when Node closes the server it removes the name that it bound.
    fs.renameSync(at, path.join(room, name))
    return line
  })
}

function listenAt(at: string, name: string): Promise<Listening> {
  let serve: ((socket: net.Socket) => void) | undefined
  const early: net.Socket[] = []
  const all = new Set<net.Socket>()
  const server = net.createServer({ pauseOnConnect: true }, (socket) => {
    all.add(socket)
    socket.unref()
    socket.once('close', () => all.delete(socket))
    if (serve !== undefined) return serve(socket)
    socket.on('error', () => {})
    early.push(socket)
  })
  // Owning a directory does not keep a process alive, and neither do its clients: another one takes over.
  server.unref()
  const close = () =>
    new Promise<void>((resolve) => {
      for (const socket of all) socket.destroy()
      server.close(() => resolve())
    })
  const onClient = (next: (socket: net.Socket) => void) => {
    serve = next
    for (const socket of early.splice(0)) next(socket)
  }
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EADDRINUSE')
        return reject(
          new UsageError('SLUICE_STORE_OWNED', `${at} is in use by another process; stop it, or connect through it`),
        )
      reject(
        new StoreError(
          'SLUICE_STORE_UNREACHABLE',
          `the file system of ${at} does not allow a socket (${error.code}), which ensures that the directory has one owner; choose a directory on a local disk`,
          { cause: error },
        ),
      )
    })
    // Exclusive: otherwise, in a cluster, the primary would hold the socket and outlive this owner.
    server.listen({ path: at, exclusive: true }, () => {
      server.removeAllListeners('error').on('error', () => {})
      resolve({ name, onClient, close })
    })
  })
}

/** Links the socket to the name that clients of PostgreSQL look for. */
function publish(home: string, room: string, name: string): void {
  const known = path.join(home, publicName)
  fs.rmSync(known, { force: true })
  fs.linkSync(path.join(room, name), known)
}

/**
 * Removes what earlier owners left: their sockets, and claims so old that no opener can still be about to follow them.
 */
function sweep(room: string, mine: number): void {
  for (const entry of fs.readdirSync(room)) {
    const number = Number(claimName.exec(entry)?.[1] ?? mine)
    if (number >= mine) continue
    const old = read(room, number)
    if (old !== undefined && /^[0-9a-f]+\.sock$/.test(old.socket))
      fs.rmSync(path.join(room, old.socket), { force: true })
    if (number < mine - claimsKept) fs.rmSync(path.join(room, entry), { force: true })
  }
}

function highest(room: string): number {
  if (!fs.existsSync(room)) return 0
  return Math.max(0, ...fs.readdirSync(room).map((entry) => Number(claimName.exec(entry)?.[1] ?? 0)))
}

function nameOf(number: number): string {
  return `claim-${String(number).padStart(12, '0')}.json`
}

function read(room: string, number: number): Claim | undefined {
  try {
    const claim = JSON.parse(fs.readFileSync(path.join(room, nameOf(number)), 'utf8')) as Claim
    return typeof claim.socket === 'string' && path.basename(claim.socket) === claim.socket ? claim : undefined
  } catch {
    return undefined
  }
}

function write(room: string, number: number, claim: Claim): void {
  const draft = path.join(room, `${claim.socket}.draft`)
  writeSynced(draft, JSON.stringify(claim))
  fs.renameSync(draft, path.join(room, nameOf(number)))
}

function writeSynced(file: string, content: string): void {
  const fd = fs.openSync(file, 'w', 0o600)
  fs.writeSync(fd, content)
  fs.fsyncSync(fd)
  fs.closeSync(fd)
}

function describeSelf(socket: string): Claim {
  return {
    pid: process.pid,
    host: os.hostname(),
    machine: `${os.hostname()} ${readLine('/etc/machine-id')}`,
    boot: readLine('/proc/sys/kernel/random/boot_id'),
    socket,
    released: false,
  }
}

function readLine(file: string): string {
  try {
    return fs.readFileSync(file, 'utf8').trim()
  } catch {
    return ''
  }
}

/** Calls `body` with a path short enough for a socket address: a long one is replaced by a temporary link. */
async function withShortPath<T>(full: string, body: (at: string) => Promise<T>): Promise<T> {
  if (Buffer.byteLength(full) <= maxPathBytes) return await body(full)
  const link = makeLink(path.dirname(full))
  try {
    return await body(path.join(link, path.basename(full)))
  } finally {
    fs.rmSync(path.dirname(link), { recursive: true, force: true })
  }
}

const links = new Map<string, string>()

/** Like `withShortPath`, for clients that connect at any time: the link lasts as long as this process. */
function linkShortPath(dir: string): string {
  if (Buffer.byteLength(path.join(dir, publicName)) <= maxPathBytes) return dir
  let link = links.get(dir)
  if (link === undefined) {
    link = makeLink(dir)
    links.set(dir, link)
    const own = path.dirname(link)
    process.once('exit', () => fs.rmSync(own, { recursive: true, force: true }))
  }
  return link
}

function makeLink(dir: string): string {
  const link = path.join(fs.mkdtempSync(path.join(os.tmpdir(), 'sluice-')), 'd')
  fs.symlinkSync(dir, link)
  return link
}

function pipeOf(home: string): string {
  return `\\\\.\\pipe\\sluice-${createHash('sha256').update(home.toLowerCase()).digest('hex').slice(0, 32)}`
}

async function ownPipe(home: string): Promise<Owner> {
  const line = await listenAt(pipeOf(home), '')
  return { onClient: line.onClient, release: line.close }
}
