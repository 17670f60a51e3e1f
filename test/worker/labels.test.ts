import { Socket } from 'node:dgram'
import { hostname } from 'node:os'
import { isIP } from 'node:net'
import { afterEach, expect, it, vi } from 'vitest'
import { labelsOf, readLabel } from '../../src/worker/labels.ts'

afterEach(() => {
  delete process.env['SLUICE_LABELS']
  vi.restoreAllMocks()
})

it('a worker has its host and the address of its machine as labels', async () => {
  const { host, ip, ...others } = await labelsOf()
  expect(host).toBe(hostname())
  expect(isIP(ip ?? '') > 0 || ip === hostname()).toBe(true)
  expect(others).toEqual({})
  expect((await labelsOf()).ip).toBe(ip)
})

it('a machine without a route has its name in place of an address', async () => {
  const connect = Socket.prototype.connect as (port: number, address: string, done?: () => void) => void
  // The system refuses both: a broadcast, and a link-local address without its link.
  const refused = ['255.255.255.255', 'fe80::1']
  vi.spyOn(Socket.prototype, 'connect').mockImplementation(function (this: Socket, port, ...rest: unknown[]) {
    connect.call(this, port, refused.shift() ?? '', rest[1] as () => void)
  })
  expect((await labelsOf()).ip).toBe(hostname())
})

it('labels in options override those of the environment, and both override detected ones', async () => {
  process.env['SLUICE_LABELS'] = 'ip=203.0.113.7, egress=a'
  expect(await labelsOf({ egress: 'b', host: 'c' })).toEqual({ ip: '203.0.113.7', egress: 'b', host: 'c' })
})

it.each([
  [{ Host: 'a' }, 'SLUICE_BAD_LABEL'],
  [{ a: '' }, 'SLUICE_BAD_LABEL'],
  [{ a: 5 }, 'SLUICE_BAD_LABEL'],
  [{ a: 'x'.repeat(513) }, 'SLUICE_BAD_KEY'],
  [Object.fromEntries(Array.from({ length: 33 }, (_, i) => [`a${i}`, 'b'])), 'SLUICE_BAD_LABEL'],
])('a worker refuses the labels %j', async (labels, code) => {
  await expect(labelsOf(labels as never)).rejects.toMatchObject({ code })
})

it('labels in the environment are written name=value', () => {
  expect(readLabel('ip=a=b')).toEqual(['ip', 'a=b'])
  for (const text of ['ip', '=a', 'ip=', 'I=a'])
    expect(() => readLabel(text)).toThrow(expect.objectContaining({ code: 'SLUICE_BAD_LABEL' }))
})
