/** Faults of a request's own side, and of the vendor's: only the latter hold limits, and only what was written uses a grant. */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { forAllInTime } from '../for-all.ts'
import { httpServer, setup, textOf } from './bench.ts'

/** What the HTTP layer refuses to write. */
const odd = [
  { 'transfer-encoding': 'chunked' },
  { 'keep-alive': 'timeout=5' },
  { upgrade: 'websocket' },
  { expect: '100-continue' },
  { 'content-length': 'many' },
]
const usual = [{}, { accept: '*/*' }]

/** A body of some parts, after which its source fails, or ends. */
type Source = { parts: number; fails: boolean }
const sources = fc.record({ parts: fc.nat(2), fails: fc.boolean() })

async function* streamOf({ parts, fails }: Source) {
  for (let i = 0; i < parts; i++) yield Buffer.from('part')
  if (fails) throw new TypeError('the disk is gone')
}

/** What a limit learns of a call: whether it may refund the grant, and whom it blames. */
function expected(headers: object, source: Source | undefined, vendor: string) {
  if (odd.includes(headers as never)) return { end: 'SLUICE_BAD_REQUEST', isRefunded: true, blamed: [] }
  if (source?.fails) return { end: 'the disk is gone', isRefunded: source.parts === 0, blamed: [] }
  if (vendor === 'closes') return { end: 'SLUICE_NETWORK', isRefunded: false, blamed: ['no answer'] }
  return { end: vendor, isRefunded: false, blamed: vendor === '500' ? ['500'] : [] }
}

test('a vendor is blamed for its own faults alone, and a call that writes nothing gives its grant back', async () => {
  const arrived = new Set<string>()
  let calls = 0
  const url = await httpServer(async (request, response) => {
    const path = request.url ?? ''
    arrived.add(path)
    await textOf(request).catch(() => {})
    if (path.startsWith('/closes')) return request.socket.destroy()
    response.writeHead(Number(path.slice(1, 4))).end()
  })
  const vendors = fc.constantFrom('200', '404', '500', 'closes')
  const bodies = fc.option(sources, { nil: undefined })
  await forAllInTime(
    60,
    fc.constantFrom(...odd, ...usual, ...usual),
    bodies,
    vendors,
    async (headers, source, vendor) => {
      const refunds: unknown[] = []
      const { fetch, holds } = setup({
        deadlineMs: 1e9,
        grants: { giveBack: async (grant) => void refunds.push(grant) },
      })
      const path = `/${vendor}/${calls++}`
      const body = source === undefined ? 'text' : streamOf(source)
      const init = { method: 'POST', headers, body, duplex: 'half' } as unknown as RequestInit
      const end = await fetch(`${url}${path}`, init).then(
        ({ status }) => String(status),
        ({ code, message }: Error & { code?: string }) => code ?? message.replace(/^.*: /, ''),
      )
      const blamed = holds.map(({ reason }) => reason.replace(/ from .*$/, ''))
      expect({ end, isRefunded: refunds.length === 1, blamed }).toEqual(expected(headers, source, vendor))
      if (refunds.length > 0) expect(arrived).not.toContain(path)
    },
  )
})
