import { expect, it } from 'vitest'
import { line, runExample } from './program.ts'

it('mails and forms arrive, attempts are counted, refused ones are retried or reported, and the rest waits', async ({
  signal,
}) => {
  const out = await runExample('welcome-mail.ts', signal)
  // Among the hundred attempts one met a temporary refusal, three a full mailbox, and one an unknown mailbox.
  expect(line(out, 'mail server:')).toBe('mail server: 100 attempts, 95 mails delivered')
  expect(out).toContain('  ada@example.test: Welcome, Ada\n')
  expect(out).toContain('  busy@example.test: Welcome, Bo\n')
  expect(line(out, 'site:')).toBe('site: 3 requests')
  expect(line(out, '  POST /subscribers 201')).toMatch(/email=ada%40example.test/)
  expect(line(out, 'failed for good:')).toBe('failed for good: 3')
  expect(out).toMatch(/ {2}send_email .*full@.* exhausted after 3 attempt\(s\).* 452 /)
  expect(out).toMatch(/ {2}send_email .*nobody@.* refused after 1 attempt\(s\).* 550 /)
  expect(out).toMatch(/ {2}post .*moved-away.* refused after 1 attempt\(s\).* 410/)
  expect(line(out, 'waiting:')).toMatch(/^waiting: 17 mails until .*: mail \(100\/h\)/)
}, 300_000)
