import { createServer, connect, type AddressInfo, type Socket } from 'node:net'
import pg from 'pg'
import { afterEach, expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { until } from '../until.ts'
import { freshDatabase } from './database.ts'
import { isReady, startProxy, type Proxy } from './proxy.ts'

const cleanups: (() => unknown)[] = []
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
})

it('the proxy passes bytes in both directions, and passes the end of a stream on', async () => {
  const { client, heard } = await connected()
  client.socket.write('one')
  await until(() => client.text() === '<one>')
  client.socket.end('two')
  await until(() => client.isEnded())
  expect(client.text()).toBe('<one><two>')
  expect(heard()).toBe('onetwo')
})

it('the proxy delays each direction, in order', async () => {
  const { proxy, client } = await connected()
  proxy.delay(50)
  const startMs = systemClock.monotonicMs()
  client.socket.write('slow')
  await until(() => client.text() === '<slow>')
  expect(systemClock.monotonicMs() - startMs).toBeGreaterThanOrEqual(100)

  let seen = ''
  void proxy.swallow({ when: (request) => ((seen += request.toString()), false) })
  proxy.delay(200)
  client.socket.write('a')
  await until(() => seen === 'a')
  proxy.delay(0)
  client.socket.write('b')
  await until(() => client.text().replace(/[<>]/g, '').length === 6)
  expect(client.text().replace(/[<>]/g, '')).toBe('slowab')
})

it('the proxy drops the reply to the request that contains a text, once, and leaves the socket open', async () => {
  const { proxy, client, heard } = await connected()
  const swallowed = proxy.swallow({ when: 'claim_v1' })
  await client.ask('other', '<other>')
  client.socket.write('select cla')
  client.socket.write('im_v1()')
  await swallowed
  expect(heard()).toContain('claim_v1()')
  await client.ask('claim_v1 again', '<other><claim_v1 again>')
  expect(client.isClosed()).toBe(false)
})

it('the proxy drops the reply that a predicate selects, and closes', async () => {
  const { proxy, client, heard } = await connected()
  const swallowed = proxy.swallow({ when: (request) => request.length > 3, leave: 'closed' })
  client.socket.write('long')
  await swallowed
  await until(() => client.isClosed())
  expect(client.text()).toBe('')
  expect(heard()).toBe('long')
  await until(() => proxy.connections === 0)
})

it('a half-open proxy passes and closes nothing, and what it kept arrives after the partition heals', async () => {
  const { proxy, client, heard, direct } = await connected()
  await client.ask('before', '<before>')
  proxy.halfOpen()
  client.socket.write('held')
  await client.isWritten()
  const late = peer(connect(proxy.port, '127.0.0.1'))
  late.socket.write('late')
  await until(() => late.socket.readyState === 'open')
  // Three round trips past the proxy: time enough for it to have forwarded, had it wanted to.
  for (const text of ['1', '2', '3']) await direct().ask(text, `<${text}>`)
  expect(heard()).toBe('before123')
  expect([client.isClosed(), late.isClosed()]).toEqual([false, false])

  await proxy.pass()
  await until(() => client.text() === '<before><held>' && late.text() === '<late>')
})

it('the proxy strands open connections, which stay silent, and new ones work', async () => {
  const { proxy, client, heard, direct } = await connected()
  await client.ask('before', '<before>')
  proxy.strand()
  client.socket.write('held')
  await client.isWritten()
  await peer(connect(proxy.port, '127.0.0.1')).ask('new', '<new>')
  for (const text of ['1', '2', '3']) await direct().ask(text, `<${text}>`)
  expect(heard()).toBe('beforenew123')
  expect(client.isClosed()).toBe(false)
})

it('the proxy resets open connections at both ends, and accepts new ones', async () => {
  const { proxy, client, open } = await connected()
  await client.ask('x', '<x>')
  proxy.reset()
  await until(() => client.isClosed())
  expect(client.error()).toContain('ECONNRESET')
  await until(() => open() === 0)
  await peer(connect(proxy.port, '127.0.0.1')).ask('y', '<y>')
})

it('the proxy refuses new connections, keeps open ones, and then accepts new ones again', async () => {
  const { proxy, client } = await connected()
  await client.ask('x', '<x>')
  await proxy.refuse()
  const refused = peer(connect(proxy.port, '127.0.0.1'))
  await until(() => refused.isClosed())
  expect(refused.error()).toContain('ECONNREFUSED')
  await client.ask('y', '<x><y>')
  await proxy.pass()
  await peer(connect(proxy.port, '127.0.0.1')).ask('z', '<z>')
})

it.each([
  { side: 'server', bytes: 4, text: '<abc', heard: 'abcdef' },
  { side: 'client', bytes: 2, text: '', heard: 'ab' },
] as const)('the proxy cuts after $bytes bytes of the $side', async ({ side, bytes, ...expected }) => {
  const { proxy, client, heard } = await connected()
  const cut = proxy.cutAfter(bytes, side)
  client.socket.write('abcdef')
  await cut
  await until(() => client.isClosed() && heard() === expected.heard)
  // The server may have answered some of the client's own bytes before the reset.
  expect(side === 'client' || client.text() === expected.text).toBe(true)
  await peer(connect(proxy.port, '127.0.0.1')).ask('next', '<next>')
})

it.each(['open', 'closed'] as const)(
  'PostgreSQL commits the work of a request whose reply is lost (%s)',
  async (leave) => {
    const { url, drop } = await freshDatabase()
    cleanups.push(drop)
    const proxy = await startProxy({ port: Number(new URL(url).port) })
    cleanups.push(() => proxy.close())
    const through = new pg.Client(proxy.url(url))
    // pg reports a lost connection to the query and here.
    through.on('error', () => {})
    const direct = new pg.Client(url)
    await Promise.all([through.connect(), direct.connect()])
    cleanups.push(() => direct.end())
    await through.query('CREATE TABLE t (n int)')

    const swallowed = proxy.swallow({ when: 'INSERT', leave, until: isReady })
    const lost = through.query('INSERT INTO t SELECT n FROM generate_series(1, $1) n RETURNING n', [5000])
    const outcome = lost.then(
      () => 'answered',
      () => 'failed',
    )
    await swallowed
    expect((await direct.query('SELECT count(*)::int AS n FROM t')).rows).toEqual([{ n: 5000 }])
    if (leave === 'open') proxy.reset()
    expect(await outcome).toBe('failed')
  },
)

/** A client, through a proxy, of a server that answers `text` by `<text>`. */
async function connected() {
  let heard = ''
  const sockets = new Set<Socket>()
  const server = createServer((socket) => {
    sockets.add(socket)
    socket.on('data', (chunk) => {
      heard += chunk.toString()
      socket.write(`<${chunk.toString()}>`)
    })
    socket.on('error', () => {})
    socket.on('close', () => sockets.delete(socket))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  const proxy: Proxy = await startProxy({ port })
  cleanups.push(() => (sockets.forEach((socket) => socket.destroy()), server.close()))
  cleanups.push(() => proxy.close())
  const client = peer(connect(proxy.port, '127.0.0.1'))
  await until(() => sockets.size === 1)
  const direct = () => peer(connect(port, '127.0.0.1'))
  return { proxy, client, direct, heard: () => heard, open: () => sockets.size }
}

/** One end of a connection, and the bytes that it received. */
function peer(socket: Socket) {
  let text = ''
  let error = ''
  let isEnded = false
  socket.setNoDelay(true)
  socket.on('data', (chunk) => (text += chunk.toString()))
  socket.on('end', () => (isEnded = true))
  socket.on('error', (cause: NodeJS.ErrnoException) => (error = String(cause.code)))
  cleanups.push(() => socket.destroy())
  return {
    socket,
    text: () => text,
    error: () => error,
    isEnded: () => isEnded,
    isClosed: () => socket.closed,
    isWritten: () => until(() => socket.writableLength === 0),
    async ask(request: string, expected: string) {
      socket.write(request)
      await until(() => text === expected)
    },
  }
}
