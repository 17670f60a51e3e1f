import { expect, it } from 'vitest'
import { line, numbers, runExample } from './program.ts'

it('an endpoint that is down is disabled, one that demands silence gets it, and others are not affected', async ({
  signal,
}) => {
  const out = await runExample('webhooks.ts', signal)
  const calls = (customer: string) =>
    [...line(out, `${customer}:`).matchAll(/(\d+):(\d+)/g)].map(([, event, status]) => ({
      event: Number(event),
      status: Number(status),
    }))
  const events = (customer: string, status: number) =>
    calls(customer)
      .filter((call) => call.status === status)
      .map(({ event }) => event)
      .toSorted((a, b) => a - b)

  for (const customer of ['north', 'south']) {
    expect(line(out, `${customer}:`)).toContain(': 6 done; got ')
    expect(calls(customer)).toHaveLength(6)
    expect(events(customer, 200)).toEqual([1, 2, 3, 4, 5, 6])
  }
  // Its endpoint is busy until the others have got everything, so this one would not end if they waited for it.
  expect(line(out, 'slow:')).toContain(': 6 done; got ')
  expect(events('slow', 429).length).toBeGreaterThan(0)
  expect(events('slow', 200)).toEqual([1, 2, 3, 4, 5, 6])
  expect(numbers(line(out, 'while slow'))[0]).toBeGreaterThan(0)

  const [cancelled = 0, failed = 0] = numbers(line(out, 'down:'))
  expect(line(out, 'down:')).toMatch(/^down: \d cancelled, \d failed; got /)
  expect([cancelled + failed, failed > 0, cancelled > 0]).toEqual([6, true, true])
  expect(calls('down').length).toBeLessThan(36)
  expect(line(out, 'switched off:')).toBe('switched off: down')
}, 300_000)
