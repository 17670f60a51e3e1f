/** Rules, routes, hours, and options of jobs that are sent by SQL, which are refused, each with its code. */
import { expect, test } from 'vitest'
import { z } from 'zod'
import { limit, newId, rule, Sluice, task } from '../../src/index.ts'
import { testSluice } from '../../src/testing/index.ts'
import { freshDatabase } from '../servers/database.ts'

const input = z.object({ account: z.string().optional() })
const crm = limit('crm', { rate: '1000/s', by: (job: { account?: string | undefined }) => job.account ?? 'none' })
const sync = task('sync.contact', { input, limits: [crm], run: () => undefined })
const mail = task('mail.welcome', { input, run: () => undefined })
const tasks = [sync, mail]

test('bad rules, routes and hours are refused', async () => {
  const bad = expect.objectContaining({ code: 'SLUICE_BAD_RULE' })
  expect(() => rule('x', { do: { hold: '5min' } as never })).toThrow(bad)
  expect(() => rule('x', { at: 'dispatch' })).toThrow(bad)
  expect(() => rule('x', { tasks: [], do: {} })).toThrow(bad)
  expect(() => rule('x', { tasks: 'a b', do: {} })).toThrow(bad)
  expect(() => rule('x y', { do: {} })).toThrow(/cannot name a rule/)
  const hours = { from: '8:00', to: '18:00', zone: 'Europe/Berlin' }
  expect(() => rule('x', { at: 'dispatch', open: hours })).toThrow(/hours are 8:00/)
  expect(() => rule('x', { at: 'dispatch', open: { ...hours, from: '08:00', zone: 'Berlin' } })).toThrow(/time zone/)
  expect(() => rule('x', { at: 'dispatch', open: { ...hours, from: '08:00', days: 'mo' } })).toThrow(/days are "mo"/)
  const twice = [rule('x', { do: {} }), rule('x', { do: {} })]
  await expect(Sluice.open({ store: 'memory:', rules: twice })).rejects.toMatchObject({ code: 'SLUICE_BAD_RULE' })
  const t = await testSluice({
    tasks,
    store: (await freshDatabase()).url,
    rules: [
      rule('k', { tasks: 'mail.*', do: { keys: { crm: 'a' } } }),
      rule('w', { tasks: 'sync.*', when: () => JSON.parse('') as boolean, do: {} }),
    ],
  })
  expect(() => rule('x', { task: 'mail.*', do: {} } as never)).toThrow(/there are at, tasks/)
  expect(() => rule('x', { at: 'dispatch', do: { hold: 0 } })).toThrow(/100 ms/)
  expect(() => rule('x', { at: 'dispatch', do: { hold: '400d' } })).toThrow(/366 days/)
  for (const unknown of [{ prio: 5 }, { limitMs: 5 }])
    await expect(mail.send({}, unknown as never)).rejects.toMatchObject({ code: 'SLUICE_BAD_OPTION' })
  await expect(mail.send({})).rejects.toMatchObject({ code: 'SLUICE_BAD_RULE' })
  await expect(sync.send({})).rejects.toMatchObject({ code: 'SLUICE_RULE_FAILED' })
  await t.close()
})

test('bad options by SQL are refused when they are sent, with the code first', async () => {
  const t = await testSluice({ tasks, store: (await freshDatabase()).url })
  const cases: [string | null, unknown, RegExp][] = [
    ['a b', {}, /^SLUICE_BAD_TASK/],
    [null, {}, /^SLUICE_BAD_TASK/],
    ['a', [1], /^SLUICE_BAD_OPTION: options must be a JSON object/],
    ['a', { queue: 7 }, /^SLUICE_BAD_OPTION: queue must be a text/],
    ['a', { priority: 1.5 }, /^SLUICE_BAD_OPTION: priority/],
    ['a', { priority: 'high' }, /^SLUICE_BAD_OPTION: priority/],
    ['a', { priority: 1e300 }, /^SLUICE_BAD_OPTION: priority/],
    ['a', { prio: 1 }, /there is no option "prio"/],
    ['a', { delay: -1 }, /^SLUICE_BAD_DURATION/],
    ['a', { delay: true }, /^SLUICE_BAD_DURATION/],
    ['a', { delay: 'soon' }, /^SLUICE_BAD_DURATION: "soon" is not a duration/],
    ['a', { max_wait: 1e300 }, /^SLUICE_BAD_DURATION/],
    ['a', { max_wait: 0 }, /^SLUICE_BAD_OPTION: .*max_wait: from 1 ms/],
    ['a', { at: 'tomorrow-ish' }, /^SLUICE_BAD_OPTION: at is "tomorrow-ish"/],
    ['a', { at: '294276-12-31', max_wait: '300 days' }, /^SLUICE_BAD_OPTION: delay, at/],
    ['a', { at: '2030-01-01', delay: 1 }, /^SLUICE_BAD_OPTION: give delay or at/],
    ['a', { at: '-infinity' }, /^SLUICE_BAD_OPTION: at is/],
    ['a', { tags: [''] }, /^SLUICE_BAD_OPTION: tags/],
    ['a', { tags: 'x' }, /^SLUICE_BAD_OPTION: tags must be a list/],
    ['a', { notify: 'no' }, /^SLUICE_BAD_OPTION: notify must be true or false/],
    ['a', { tags: [1] }, /^SLUICE_BAD_OPTION: tags must be a list/],
    ['a', { id: '00000000-0000-4000-8000-000000000000' }, /^SLUICE_BAD_ID/],
    ['a', { id: '7' }, /^SLUICE_BAD_ID/],
    ['a', { id: newId().replace(/(?<=^.{19})./, '0') }, /^SLUICE_BAD_ID/],
    ['a', { idempotency_key: '' }, /^SLUICE_BAD_OPTION: idempotency_key/],
  ]
  for (const [name, options, message] of cases) {
    const sent = t.sluice.db.query('select sluice.send($1, $2, $3)', [name, '{}', JSON.stringify(options)])
    await expect(sent, JSON.stringify(options)).rejects.toMatchObject({
      code: '22023',
      message: expect.stringMatching(message),
    })
  }
  const unset = '{"queue":null,"priority":null,"delay":null,"at":null,"tags":null,"max_wait":null,"id":null}'
  await t.sluice.db.query(`select sluice.send('later', '{}', $1)`, [unset])
  const [row] = await t.sluice.db.query<{ a: string; b: string }>(
    `select sluice.send('later', '{}', '{"idempotency_key": "k"}') as a, sluice.send('later', '{}', '{"idempotency_key": "k"}') as b`,
  )
  expect(row?.a).toBe(row?.b)
  await t.close()
})
