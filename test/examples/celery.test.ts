import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { limit } from '../../src/index.ts'
import { RedisLimiter } from '../../src/redis/limiter.ts'
import { startRedis } from '../servers/redis.ts'
import { connectRedis } from '../servers/resp.ts'
import { until } from '../until.ts'
import { findPython } from './interpreter.ts'

const place = fileURLToPath(new URL('../../examples/python', import.meta.url))
const calls = 40
const units = 8

it('Celery tasks keep a limit of the fleet, and are postponed without a retry while there is no room', async ({
  onTestFinished,
}) => {
  const python = await findPython('celery', 'redis')
  const server = await startRedis()
  const client = await connectRedis(server.port)
  const arrivals: { path: string; ms: number }[] = []
  const vendor = createServer(({ url: path = '' }, response) => {
    const isFirst = !arrivals.some((one) => one.path === path)
    arrivals.push({ path, ms: performance.now() })
    // One call fails once: that is a retry.
    response.writeHead(path === '/calls/7' && isFirst ? 503 : 204).end()
  })
  await new Promise<void>((resolve) => vendor.listen(0, '127.0.0.1', resolve))
  const workers: ChildProcess[] = []
  onTestFinished(async () => {
    for (const one of workers) one.kill('SIGKILL')
    vendor.close()
    client.close()
    await server.close()
  })

  const limiter = new RedisLimiter(client)
  const { rules, keyed, grantUs } = limit('crm', { window: `${units}/s`, transit: 400 })
  await limiter.begin({ owner: 'sluice', epoch: 'first', closeUs: 0 })
  await limiter.publish({ name: 'crm', rules, version: 1, isKeyed: keyed, grantUs })
  const env = {
    ...process.env,
    REDIS_URL: server.url,
    CRM_API: `http://127.0.0.1:${(vendor.address() as AddressInfo).port}`,
    PYTHONDONTWRITEBYTECODE: '1',
  }
  const log: string[] = []
  for (const name of ['one', 'two']) {
    const args = ['-m', 'celery', '-A', 'celery_limits', 'worker', '--pool', 'solo', '-n', name, '-l', 'INFO']
    const worker = spawn(python, args, { cwd: place, env })
    worker.stderr.on('data', (text) => log.push(String(text)))
    workers.push(worker)
  }
  await promisify(execFile)(python, ['celery_limits.py', String(calls)], { cwd: place, env })
  const paths = () => new Set(arrivals.map(({ path }) => path))
  await until(() => paths().size === calls && arrivals.length > calls, 'all calls have arrived').catch(() => {})
  expect(paths().size, log.join('')).toBe(calls)
  expect(arrivals.map(({ path }) => path).filter((path) => path === '/calls/7')).toHaveLength(2)
  expect(arrivals).toHaveLength(calls + 1)
  const shortest = Math.min(...arrivals.slice(units).map(({ ms }, i) => ms - (arrivals[i]?.ms ?? 0)))
  expect(shortest).toBeGreaterThanOrEqual(1_000)
  // If each postponement had been a retry, three of them would have ended a call.
  const putOff = [...log.join('').matchAll(/Task celery_limits\.call\[(.*?)\] retry/g)].map(([, id]) => id)
  const most = Math.max(...putOff.map((id) => putOff.filter((one) => one === id).length))
  console.info(`${putOff.length} times put off, ${most} times the same; ${units + 1} calls in ${shortest} ms at least`)
  expect(most).toBeGreaterThan(3)
})
