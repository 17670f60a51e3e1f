import { once } from 'node:events'
import fs, { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { type AddressInfo, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { TLSSocket } from 'node:tls'
import { afterEach, beforeEach, expect, it, onTestFinished, vi } from 'vitest'
import { z } from 'zod'
import { env, place } from '../../src/db/open.ts'
import { migratedTemplate } from '../../src/db/template.ts'
import { limit, type Log, Sluice, task } from '../../src/index.ts'
import { emptyDatabase } from '../servers/database.ts'
import { freshRedis, selfSigned } from '../servers/redis.ts'

let dir: string
beforeEach(() => void (dir = mkdtempSync(join(tmpdir(), 'sluice-open-'))))
afterEach(() => {
  vi.unstubAllEnvs()
  vi.restoreAllMocks()
  rmSync(dir, { recursive: true, force: true })
})

it.each(['mysql://u:secret@h/d', 'redis://x:1', 'http:secret', 'postgres:/h/secret', 'postgres//u:secret@h/d', ''])(
  'a store URL that names no store is refused, and no directory is created: %j',
  async (store) => {
    const refused = expect.objectContaining({ code: 'SLUICE_BAD_URL', message: expect.not.stringContaining('secret') })
    await expect(Sluice.open({ store })).rejects.toEqual(refused)
    vi.stubEnv('DATABASE_URL', store)
    if (store === '') expect(env('DATABASE_URL')).toBeUndefined()
    else await expect(Sluice.open()).rejects.toEqual(refused)
    expect(store === '' || existsSync(store)).toBe(store === '')
  },
)

it('an option that does not exist is refused before a store is opened, because it may be a misspelled store', async () => {
  const opened = Sluice.open({ url: 'postgres://127.0.0.1:1/none' } as never)
  await expect(opened).rejects.toMatchObject({ code: 'SLUICE_BAD_OPTION' })
  await expect(opened).rejects.toThrow(/^`Sluice\.open` has no "url"; there are store, /)
})

it('a directory is relative to the file or process that names it, and memory and servers are not', () => {
  expect(place('data', dir)).toBe(join(dir, 'data'))
  expect(place('/data', dir)).toBe('/data')
  for (const store of ['memory:', 'postgres://h/d', 'postgresql://h/d']) expect(place(store, dir)).toBe(store)
})

it('the option migrate: false leaves the database as it is', async () => {
  const { url } = await emptyDatabase()
  await expect(Sluice.open({ store: url, migrate: false })).rejects.toMatchObject({
    code: 'SLUICE_NOT_MIGRATED',
    message: expect.stringMatching(/no schema sluice .*sluice migrate.*DATABASE_URL/),
  })
  const debug = vi.fn<Log['debug']>()
  const log: Log = { debug, info() {}, warn() {}, error() {} }
  await Sluice.open({ store: url }).then((sluice) => sluice.close())
  const sluice = await Sluice.open({ store: url, migrate: false, log })
  expect(debug).toHaveBeenCalledWith('the store is open', { store: sluice.db.where, schema: 'sluice' })
  await sluice.close()
})

it('a new embedded store comes from a template with its tables and functions, and begins its days and its epoch itself', async () => {
  const made = new URL(`../../dist/${migratedTemplate}`, import.meta.url)
  expect(existsSync(made), '`npm run setup` makes the template after each change of SQL').toBe(true)
  const steps = async (schema: string) => {
    const sluice = await Sluice.open({ store: 'memory:', schema })
    const query = <T>(sql: string) => sluice.db.query<T>(sql.replaceAll('sluice.', `${schema}.`))
    const [begun] = await query<{ days: number; epoch: string }>(
      `select count(*)::int as days, (select identity from sluice.epoch) as epoch from pg_inherits
       where inhparent = 'sluice.done'::regclass`,
    )
    expect(begun).toEqual({ days: 6, epoch: expect.stringMatching(/^\d+\/00000001\/\d+$/) })
    const [now] = await query<{ names: string[] }>(
      `select array_agg(name) as names from sluice.migration where applied_at > pg_postmaster_start_time()`,
    )
    const schemas = await query<{ name: string }>(
      `select nspname as name from pg_namespace where nspname ~ '^(sluice|other)'`,
    )
    await sluice.close()
    return { names: now?.names, schemas: schemas.map(({ name }) => name.replace(/_.*/, '')) }
  }
  expect(await steps('sluice')).toEqual({ names: ['first-partitions-and-epoch'], schemas: ['sluice', 'sluice'] })
  const other = await steps('other')
  expect(other.names).toEqual(expect.arrayContaining(['0001_store', 'first-partitions-and-epoch']))
  expect(other.schemas).toEqual(['other', 'other'])
})

it('a client of the owner of a directory can send in a transaction, with limits and keys', async () => {
  const limited = task('limited', {
    input: z.object({ account: z.string() }),
    limits: [limit('few', { rate: '5/h', by: 'account' })],
    run: () => undefined,
  })
  const owner = await Sluice.open({ store: join(dir, 'data') })
  const served = await Sluice.open({ store: join(dir, 'data') })
  expect([owner.url, served.url]).toEqual([undefined, expect.stringContaining('postgres:')])
  const id = await served.transaction((tx) => served.send(limited, { account: 'a' }, { tx, idempotencyKey: 'k' }))
  expect(await owner.jobs.get(id)).toMatchObject({ limits: ['few:a'] })
  for (const sluice of [owner, served])
    await sluice.transaction(async () => {
      for (const beside of [
        () => sluice.send(limited, { account: 'a' }),
        () => sluice.sendMany(limited, [{ account: 'a' }]),
        () => sluice.db.query('select 1'),
        () => sluice.transaction(async () => {}),
      ])
        await expect(beside()).rejects.toMatchObject({ code: 'SLUICE_QUERY_OUTSIDE_TRANSACTION' })
    })
  await served.close()
  await owner.close()
})

it('an embedded store that ends for good reports that, gives up running attempts, refuses calls and frees its directory', async () => {
  const store = join(dir, 'data')
  const error = vi.fn<Log['error']>()
  const sluice = await Sluice.open({ store, log: { debug() {}, info() {}, warn() {}, error } })
  let begun = () => {}
  const begins = new Promise<void>((resolve) => (begun = resolve))
  const deaf = task('deaf', { input: z.object({}), run: () => new Promise(() => begun()) })
  await sluice.work([deaf])
  await sluice.send(deaf, {})
  await begins
  vi.spyOn(fs, 'fdatasyncSync').mockImplementationOnce(() => {
    throw new Error('the disk is full')
  })
  // The heartbeat of its worker notices it, without any call.
  const ended = await sluice.ended
  expect(ended).toMatchObject({
    code: 'SLUICE_STORE_UNREACHABLE',
    message: expect.stringContaining('the disk is full'),
  })
  expect(error).toHaveBeenCalledWith(expect.stringContaining('failed for good'), {
    err: expect.objectContaining({ code: 'SLUICE_STORE_UNREACHABLE', message: ended?.message }) as object,
  })
  await expect(sluice.send(deaf, {})).rejects.toBe(ended)
  const again = await Sluice.open({ store })
  expect(again.owner).toBe(true)
  await Promise.all([sluice.close(), again.close()])
})

it('a server with TLS that is not trusted, or without TLS that is wanted, is not reported as silent', async ({
  onTestFinished,
}) => {
  const paths = await selfSigned()
  const [cert, key] = [readFileSync(paths.cert), readFileSync(paths.key)]
  for (const [letter, why] of [
    ['S', 'self-signed certificate'],
    ['N', 'does not support SSL'],
  ] as const) {
    // What PostgreSQL answers to a request for TLS: yes or no.
    const server = createServer((socket) =>
      socket.once('data', () => {
        socket.write(letter)
        if (letter === 'S') new TLSSocket(socket, { isServer: true, cert, key }).on('error', () => socket.destroy())
      }),
    ).listen(0, '127.0.0.1')
    onTestFinished(() => void server.close())
    await once(server, 'listening')
    const store = `postgres://u@127.0.0.1:${(server.address() as AddressInfo).port}/d?sslmode=verify-full`
    await expect(Sluice.open({ store })).rejects.toMatchObject({
      code: 'SLUICE_STORE_UNREACHABLE',
      message: expect.stringMatching(new RegExp(`answers, but not with TLS .*${why}.*sslrootcert`)),
    })
  }
})

it('a server that wants a password, and gets none, is not reported as silent', async ({ onTestFinished }) => {
  vi.stubEnv('PGPASSWORD', undefined)
  onTestFinished(() => void vi.unstubAllEnvs())
  // PostgreSQL's requests for SCRAM: the mechanisms that it knows, then its first message.
  const request = (kind: number, text: string) => {
    const head = Buffer.from('R.........')
    head.writeInt32BE(8 + text.length, 1)
    head.writeInt32BE(kind, 5)
    return Buffer.concat([head.subarray(0, 9), Buffer.from(text)])
  }
  const server = createServer((socket) => {
    socket.on('error', () => socket.destroy())
    socket.once('data', () => {
      socket.write(request(10, 'SCRAM-SHA-256\0\0'))
      socket.once('data', () => socket.write(request(11, 'r=nonce,s=c2FsdA==,i=4096')))
    })
  }).listen(0, '127.0.0.1')
  onTestFinished(() => void server.close())
  await once(server, 'listening')
  const store = `postgres://u@127.0.0.1:${(server.address() as AddressInfo).port}/d`
  await expect(Sluice.open({ store })).rejects.toMatchObject({
    code: 'SLUICE_STORE_UNREACHABLE',
    message: expect.stringMatching(/answers, but wants a password; .*PGPASSWORD/),
  })
})

it.each(['HTTP/1.1 400 Bad Request\r\n\r\n', '-ERR unknown command\r\n', 'SSH-2.0-Server\r\n', 'J\0\0\0\x0a8.4.0\0'])(
  'a server that is not PostgreSQL is reported as one that answers: %j',
  async (said) => {
    const server = createServer((socket) => {
      socket.on('error', () => socket.destroy())
      socket.once('data', () => socket.write(said, 'latin1'))
    }).listen(0, '127.0.0.1')
    onTestFinished(() => void server.close())
    await once(server, 'listening')
    for (const query of ['', '?sslmode=require']) {
      const store = `postgres://u:secret@127.0.0.1:${(server.address() as AddressInfo).port}/d${query}`
      await expect(Sluice.open({ store })).rejects.toMatchObject({
        code: 'SLUICE_STORE_UNREACHABLE',
        message: expect.stringMatching(
          /^what answers at 127\.0\.0\.1:\d+\/d does not speak PostgreSQL .*DATABASE_URL$/,
        ),
      })
    }
  },
)

it('a Redis, which waits for the end of a line, is reported as one that answers', async () => {
  const { server } = await freshRedis()
  await expect(Sluice.open({ store: `postgres://u:secret@127.0.0.1:${server.port}/d` })).rejects.toMatchObject({
    code: 'SLUICE_STORE_UNREACHABLE',
    message: expect.stringMatching(
      /^what answers at .* does not speak PostgreSQL \(it begins with "\+PONG.*DATABASE_URL$/,
    ),
  })
}, 30_000)
