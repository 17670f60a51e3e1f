/** The address guard: by tables, by a resolver of the test's own, and against servers that must receive nothing. */
import type { LookupAddress } from 'node:dns'
import { createServer } from 'node:http'
import type { AddressInfo, LookupFunction } from 'node:net'
import fc from 'fast-check'
import { expect, onTestFinished, test } from 'vitest'
import { Agents, createAgent } from '../../src/http/agent.ts'
import type { Grant } from '../../src/http/send-check.ts'
import { Guard } from '../../src/http/guard.ts'
import { httpServer, setup } from './bench.ts'
import { forAll } from '../for-all.ts'

const blocked = { code: 'SLUICE_BLOCKED_ADDRESS', retryable: false }
const refuses = (url: string, allow: string[] = []) => new Guard(allow).check(new URL(url))

/** Resolves names by a table: each time to the next answer, and to the last one for ever. */
function resolver(answers: Record<string, string[][]>) {
  const asked: string[] = []
  const lookup: LookupFunction = (name, options, done) => {
    asked.push(name)
    const left = answers[name] ?? []
    const found = left.length > 1 ? left.shift() : left[0]
    if (found === undefined) return done(Object.assign(new Error(`no ${name}`), { code: 'ENOTFOUND' }), '')
    const addresses: LookupAddress[] = found.map((address) => ({ address, family: address.includes(':') ? 6 : 4 }))
    if (options.all === true) return done(null, addresses)
    return done(null, addresses[0]?.address ?? '', addresses[0]?.family)
  }
  return { asked, lookup }
}

/** The environment of `fetch` when names resolve by the table. */
function named(answers: Record<string, string[][]>, allow: string[], grants = {}) {
  const { asked, lookup } = resolver(answers)
  const agent = createAgent(new Guard(allow), { lookup } as never)
  return { asked, ...setup({ agent, deadlineMs: 60_000, grants }) }
}

/** A server on loopback that answers with the address at which it was called. */
async function anywhere() {
  const heard: (string | undefined)[] = []
  const server = createServer((request, response) => {
    heard.push(request.socket.localAddress)
    response.setHeader('connection', request.url === '/close' ? 'close' : 'keep-alive').end('ok')
  })
  await new Promise<void>((resolve) => server.listen(0, '0.0.0.0', resolve))
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  return { port: (server.address() as AddressInfo).port, heard }
}

const refused = `
  127.0.0.1 127.255.255.254 127.1 2130706433 0x7f000001 0177.0.0.1 0x7f.1 127.0.0.1. ①②⑦.⓪.⓪.① 127。0。0。1 0
  0.0.0.0 0.1.2.3 10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 169.254.169.254 0xa9fea9fe 100.64.0.1
  100.127.255.255 100.100.100.200 168.63.129.16 192.0.0.192 192.0.2.1 198.18.0.1 198.51.100.1 203.0.113.1
  192.88.99.1 224.0.0.1 240.0.0.1 255.255.255.255 [::] [::1] [0:0:0:0:0:0:0:1] [fe80::1] [fec0::1]
  [fc00::1] [fd00:ec2::254] [ff02::1] [::ffff:127.0.0.1] [::ffff:7f00:1] [::ffff:a9fe:a9fe] [::127.0.0.1]
  [::ffff:0:127.0.0.1] [64:ff9b::127.0.0.1] [64:ff9b::a9fe:a9fe] [64:ff9b:1::1] [64:ff9b:1:7f00:0:100::]
  [2002:7f00:1::] [2002:808:808::] [2001:0:7f00:1::] [2001:db8::1] [3fff::1] [100::1] [5f00::1] [4000::1]`

test.each(refused.trim().split(/\s+/))('a call of %s is refused', (host) => {
  for (const url of [`http://${host}/`, `https://${host}:8443/x`]) expect(refuses(url)).toMatchObject(blocked)
})

test.each([
  '1.1.1.1',
  '8.8.8.8',
  '172.32.0.1',
  '100.128.0.1',
  '[2606:4700::1111]',
  '[64:ff9b::1.1.1.1]',
  '[::ffff:1.1.1.1]',
])('a call of %s is allowed', (host) => expect(refuses(`https://${host}/`)).toBeUndefined())

test('zone ids and hosts that only look like addresses do not become URLs', () => {
  for (const host of ['[fe80::1%25eth0]', '[fe80::1%eth0]', '256.1.1.1', '1.2.3.4.5', 'a.127.0.0.1', '127.0.0.1%00'])
    expect(URL.canParse(`http://${host}/`), host).toBe(false)
})

test('every notation of an address is recognised as the same address', () => {
  const spellings = fc.tuple(fc.nat(255), fc.nat(255), fc.nat(255), fc.nat(255)).map((parts) => {
    const number = parts.reduce((sum, part) => sum * 256 + part, 0)
    const dotted = parts.join('.')
    const hex = number.toString(16)
    const octal = parts.map((part) => `0${part.toString(8)}`).join('.')
    return [dotted, `${dotted}.`, String(number), `0x${hex}`, octal, `[::ffff:${dotted}]`, `[64:ff9b::${dotted}]`]
  })
  forAll(spellings, (hosts) => {
    const verdicts = hosts.map((host) => refuses(`http://${host}/`)?.code)
    expect(new Set(verdicts).size).toBe(1)
  })
})

test('other schemes and the ports of other protocols are refused, unless the port is named', () => {
  for (const url of ['ftp://1.1.1.1/', 'file:///etc/passwd', 'data:,x', 'blob:x', 'gopher://1.1.1.1/'])
    expect(refuses(url), url).toMatchObject(blocked)
  for (const port of [22, 25, 81, 1023, 6000, 6667]) expect(refuses(`http://a.example:${port}/`)).toMatchObject(blocked)
  for (const port of [22, 6667])
    expect(refuses(`http://a.example:${port}/`, [`a.example:${port}`])).toMatchObject(blocked)
  for (const port of [80, 443, 1024, 8080, 65_535]) expect(refuses(`http://a.example:${port}/`)).toBeUndefined()
  expect(refuses('http://a.example:81/', ['a.example:81'])).toBeUndefined()
  expect(refuses('http://10.0.0.5:81/', ['10.0.0.5:81'])).toBeUndefined()
  expect(refuses('http://10.0.0.5:81/', ['10.0.0.0/8'])).toMatchObject(blocked)
})

test.each([
  [['127.0.0.1'], ['http://127.0.0.1/', 'http://2130706433:8080/', 'http://[::ffff:127.0.0.1]/'], 'http://127.0.0.2/'],
  [['10.0.0.0/8'], ['http://10.255.0.1/', 'http://[64:ff9b::10.1.1.1]/'], 'http://11.0.0.1@192.168.0.1/'],
  [['127.0.0.1:8080'], ['http://127.0.0.1:8080/', 'https://127.1:8080/'], 'http://127.0.0.1:8081/'],
  [['::1'], ['http://[::1]/', 'http://[::1]:9000/'], 'http://[::2]/'],
  [['[::1]:9000'], ['http://[::1]:9000/'], 'http://[::1]/'],
  [['fd00::/8', ' 10.0.0.1 '], ['http://[fd12::1]/', 'http://10.0.0.1/'], 'http://[fc12::1]/'],
])('%j allows what it names and nothing beside it', (allow, through, beside) => {
  for (const url of through) expect(refuses(url, allow), url).toBeUndefined()
  expect(refuses(beside, allow)).toMatchObject(blocked)
})

const nonsense = ['', 'a b', 'http://a', '10.0.0.0/33', '10.0.0/8', 'a.example:0', 'a:70000', '[::1', 'user@host']

test.each([...nonsense, 'a/b', '*', '*.example', '[v1.x]', '10.0.0.0/8:80'])(
  'an invalid allowance is refused when it is defined: "%s"',
  (entry) => expect(() => new Guard([entry])).toThrow(expect.objectContaining({ code: 'SLUICE_BAD_OPTION' })),
)

test('a name is refused when any of its addresses is, and nothing is sent', async () => {
  const { port, heard } = await anywhere()
  const back: Grant[] = []
  const answers = { 'a.example': [['127.0.0.1']], 'b.example': [['1.1.1.1', '::1']], 'c.example': [['fe80::1%eth0']] }
  const { fetch, asked } = named(answers, [], { giveBack: async (unused: Grant) => void back.push(unused) })
  await expect(fetch(`http://a.example:${port}/?token=x`)).rejects.toMatchObject({
    ...blocked,
    message: expect.stringMatching(
      /^nothing was sent to http:\/\/a\.example:\d+: .* 127\.0\.0\.1, .* loopback.*'a\.example:\d+'/,
    ) as string,
  })
  await expect(fetch(`http://b.example:${port}/`)).rejects.toMatchObject(blocked)
  await expect(fetch(`http://c.example:${port}/`)).rejects.toMatchObject(blocked)
  // One look-up each, and each grant was refunded.
  expect(asked).toEqual(['a.example', 'b.example', 'c.example'])
  expect(back).toHaveLength(3)
  expect(heard).toEqual([])
})

test('a refused literal address takes no further grant, and refunds its own grant once', async () => {
  const back: Grant[] = []
  const giveBack = async (unused: Grant) => void back.push(unused)
  const { fetch, taken } = named({}, [], { giveBack })
  for (let i = 0; i < 3; i++) await expect(fetch('http://169.254.169.254/latest')).rejects.toMatchObject(blocked)
  expect([back.length, taken.length]).toEqual([1, 0])
})

test('every hop of a redirect is checked', async () => {
  const { port, heard } = await anywhere()
  const from = await httpServer((request, response) =>
    response.writeHead(302, { location: decodeURIComponent(request.url?.slice(2) ?? '') }).end(),
  )
  const { fetch } = named({ 'inside.example': [['127.0.0.2']] }, ['127.0.0.1'])
  const to = (url: string) => fetch(`${from}/?${encodeURIComponent(url)}`)
  for (const host of ['127.0.0.2', '[::1]', 'inside.example', '0x7f000002'])
    await expect(to(`http://${host}:${port}/`), host).rejects.toMatchObject(blocked)
  expect(heard).toEqual([])
  // An allowed address is reached, so the checks above can fail.
  expect(await (await to(`http://127.0.0.1:${port}/`)).text()).toBe('ok')
})

test('a name that changes its address is called at the checked address, and refused afterwards', async () => {
  const { port, heard } = await anywhere()
  // 127.0.0.2 stands for a public address.
  const { fetch, asked } = named({ 'rebinds.example': [['127.0.0.2'], ['127.0.0.1']] }, ['127.0.0.2'])
  const url = `http://rebinds.example:${port}/`
  expect((await fetch(`${url}close`)).status).toBe(200)
  expect([heard, asked]).toEqual([['127.0.0.2'], ['rebinds.example']])
  await expect(fetch(url)).rejects.toMatchObject(blocked)
  expect([heard.length, asked.length]).toEqual([1, 2])
})

test('an allowed name is called at any address, at the named port', async () => {
  const { port, heard } = await anywhere()
  const answers = { 'inside.example': [['127.0.0.1']] }
  const send = (allow: string) => named(answers, [allow]).fetch(`http://Inside.example.:${port}/`)
  // Names with a dot at their end are resolved unchanged.
  Object.assign(answers, { 'inside.example.': [['127.0.0.1']] })
  for (const allow of ['inside.example', `INSIDE.example.:${port}`]) expect((await send(allow)).status).toBe(200)
  await expect(send('inside.example:1')).rejects.toMatchObject(blocked)
  await expect(send('other.example')).rejects.toMatchObject(blocked)
  expect(heard).toHaveLength(2)
})

test('a connection that one task may use does not serve another', async () => {
  const { port, heard } = await anywhere()
  const agents = new Agents([])
  const [open, shut] = [agents.of(['localhost']), agents.of([])]
  expect(agents.of(['localhost'])).toBe(open)
  const url = `http://localhost:${port}/`
  expect((await setup({ agent: open }).fetch(url)).status).toBe(200)
  await expect(setup({ agent: shut }).fetch(url)).rejects.toMatchObject(blocked)
  expect(heard).toHaveLength(1)
})
