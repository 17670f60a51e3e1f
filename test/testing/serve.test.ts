import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { expect, onTestFinished, test } from 'vitest'
import { brief } from '../v8.ts'

test('a vendor runs as a process of its own, and reports when its input ends', async () => {
  const path = fileURLToPath(new URL('../../src/testing/serve.ts', import.meta.url))
  const options = JSON.stringify({
    rules: [{ algorithm: 'sliding log', limit: 1, windowMs: 60_000, key: 'header:x-a' }],
  })
  // jiti, because the oldest supported Node does not read TypeScript by itself.
  const child = spawn(process.execPath, [...brief, '--import', 'jiti/register', path, options], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  const ended = once(child, 'exit')
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  const url = String((await lines.next()).value)
  const call = async () => (await fetch(url, { headers: { 'x-a': '1' } })).status
  expect([await call(), await call()]).toEqual([200, 429])
  const told = (await (await fetch(`${url}/.vendor/report`)).json()) as object
  child.stdin.end()
  expect(JSON.parse(String((await lines.next()).value))).toEqual(told)
  expect(told).toMatchObject({ arrivals: 2, vendor429: 1, rules: [{ exceeded: 1, worst: 2 }] })
  expect(await ended).toEqual([0, null])
})
