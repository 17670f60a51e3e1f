import { expect, it, onTestFinished } from 'vitest'
import { Sluice } from '../../src/sluice.ts'
import { freshDatabase } from '../servers/database.ts'
import { addBucket, refuse } from '../limits/engine.ts'
import { createProject, objects, tasksFile } from './program.ts'

it('an operator shows, sets, pins, rekeys and pauses limits by the command limits', async () => {
  const { url } = await freshDatabase()
  const project = createProject({ DATABASE_URL: url })
  onTestFinished(() => project.close())
  project.write('tasks.ts', tasksFile.replace(`by: 'accountId' })`, `by: 'accountId', vendor: '60/min' })`))
  const limits = (...args: string[]) => project.runWarm(['limits', ...args])
  await (await Sluice.open({ store: url })).close()
  const sent = await project.run(['send', 'sync-contact', '{"accountId":"a1"}', '--tasks', 'tasks.ts', '--json'])
  const id = String(objects(sent.out)[0]?.['id'])

  const shown = await limits('show', 'crm')
  expect(shown.out).toMatch(/^crm {2}100\/min, for each accountId \(version 1, margin 200 ms\)$/m)
  expect(shown.out).toMatch(/^the vendor sees at most 100 in any window of 100\/min, as long as .* 200 ms; .*\.$/m)
  expect(shown.out).toMatch(/^RULE +BURST +SUSTAINED +OF NOMINAL +VENDOR LIMIT +SEES AT MOST +REFUSES AT MOST$/m)
  expect(shown.out).toMatch(/^100\/min +10 +1\.658\/s +99\.5 % +100$/m)
  expect(shown.out).toMatch(/^ +60\/min, sliding log +100 +40$/m)
  expect(shown.out).toMatch(/^ +60\/min, bucket of 60 +100 +no bound$/m)
  expect(shown.out).toMatch(/warning: the vendor allows 60\/min, and up to 100 may arrive in such a window$/m)
  expect(shown.err).toBe('next: `sluice limits history crm`\n')
  const narrow = await project.run(['limits', 'show', 'crm'], { env: { COLUMNS: '80' } })
  expect(narrow.out).toMatch(/^RULE +BURST +VENDOR LIMIT +SEES AT MOST +REFUSES AT MOST$/m)
  expect(narrow.out).toMatch(/^ +60\/min, sliding counter +100 /m)
  expect((await project.runWarm(['doctor'])).out).toMatch(/^warn +limits +crm: the vendor allows 60\/min/m)

  const set = await limits('set', 'crm', '--rate', '50/min', '--concurrency', '5', '--reason', 'as they asked')
  expect(set).toMatchObject({ code: 0, err: 'next: `sluice limits unset crm` undoes it\n' })
  expect(set.out).toMatch(/^crm {2}50\/min and concurrency 5, for each accountId \(version 2, margin 200 ms\)$/m)
  expect(set.out).toMatch(/^ {2}stored \S+ \S+ ago by \S+@\S+: as they asked$/m)
  expect(set.out).toMatch(/^ {2}overridden: in code 100\/min$/m)
  expect(set.out).not.toContain('warning')
  const pinned = await limits(
    'pin',
    'crm',
    '--rate',
    '5/s',
    '60/min',
    '--concurrency',
    'none',
    '--reason',
    'x',
    '--json',
  )
  expect(objects(pinned.out)).toMatchObject([
    { name: 'crm', version: 3, source: 'pinned', rates: ['5/s', '60/min'], numbers: { rate: ['5/s', '60/min'] } },
  ])
  const under = await limits('set', 'crm', '--rate', '40/min', '--reason', 'less')
  expect(under.err).toContain('the pinned numbers override it')
  expect((await limits()).out).toMatch(/^ {2}overridden: stored 40\/min, concurrency 5$/m)
  expect(await limits('unpin', 'crm')).toMatchObject({ code: 0, out: expect.stringMatching(/^crm {2}40\/min/) })
  expect(await limits('unpin', 'crm')).toMatchObject({
    code: 1,
    err: expect.stringContaining('SLUICE_NOT_OVERRIDDEN'),
  })
  expect(objects((await limits('unset', 'crm', '--json')).out)).toMatchObject([{ source: 'code', version: 5 }])
  const history = await limits('history', 'crm')
  expect(history.out).toMatch(/^VERSION +SOURCE +ALLOWS +SINCE +BY +REASON$/m)
  expect(history.out).toMatch(/^3 +pinned +5\/s and 60\/min +\S+Z +\S+@\S+ +x$/m)

  expect(await limits('rekey', 'crm', '--key', 'a1', '--to', 'a1-eu', '--dry-run')).toMatchObject({
    out: '1 job would be rekeyed\n',
    err: expect.stringContaining(id),
  })
  expect(await limits('rekey', 'crm', '--key', 'a1', '--to', 'a1-eu', '--yes')).toMatchObject({ out: '1 rekeyed\n' })
  expect(objects((await project.runWarm(['jobs', 'show', id, '--json'])).out)).toMatchObject([
    { limits: ['crm:a1-eu'] },
  ])

  expect(await limits('pause', 'crm', '--key', 'a1-eu', '--reason', 'late')).toMatchObject({
    out: 'limit crm key a1-eu is paused\n',
  })
  expect((await limits('show', 'crm')).out).toMatch(/^ {2}paused: a1-eu$/m)
  expect(await limits('resume', 'crm', '--key', 'a1-eu')).toMatchObject({ out: 'limit crm key a1-eu is resumed\n' })

  for (const [args, code, says] of [
    [['show', 'nobody'], 1, 'SLUICE_NO_SUCH_LIMIT'],
    [['set', 'crm', '--rate', 'much', '--reason', 'x'], 2, 'SLUICE_BAD_RATE'],
    [['unset', 'crm', '--key', 'a1'], 1, 'nothing is stored for key "a1" of limit "crm"'],
    [['set', 'crm', '--concurrency', 'many', '--reason', 'x'], 2, 'whole number, or none'],
  ] as const)
    expect(await limits(...args)).toMatchObject({ code, err: expect.stringContaining(says) })
}, 300_000)

it('an operator gives one key numbers of its own', async () => {
  const { url } = await freshDatabase()
  const project = createProject({ DATABASE_URL: url })
  onTestFinished(() => project.close())
  project.write('tasks.ts', tasksFile.replace(`by: 'accountId' })`, `by: 'accountId', vendor: '200/min' })`))
  const limits = (...args: string[]) => project.runWarm(['limits', ...args])
  await project.run(['send', 'sync-contact', '{"accountId":"a1"}', '--tasks', 'tasks.ts', '--json'])
  const set = await limits('set', 'crm', '--key', 'a b', '--rate', '1000/min', '--reason', 'a contract')
  expect(set.err).toMatch(/^next: `sluice limits unset crm --key (['"])a b\1` undoes it$/m)
  expect(set.out).toMatch(/^crm {2}1000\/min, for a b \(version 2, margin 200 ms\)$/m)
  expect(set.out).toMatch(/^ {2}overridden: in code 100\/min$/m)
  const listed = await limits()
  expect(listed.out).toMatch(/^crm {2}100\/min, for each accountId \(version 1, margin 200 ms\)$/m)
  expect(listed.out).toMatch(/^ {2}a b: 1000\/min, stored .+ ago by \S+@\S+: a contract$/m)
  expect(objects((await limits('show', 'crm', '--json')).out)).toMatchObject([
    { rates: ['100/min'], keyNumbers: [{ key: 'a b', source: 'stored', numbers: { rate: '1000/min' } }] },
  ])
  const one = await limits('show', 'crm', '--key', 'a b')
  expect(one.out).toMatch(/^the vendor sees at most 1000 in any window of 1000\/min, .*[^)]\.$/m)
  expect((await limits('history', 'crm', '--key', 'a b')).out).toMatch(/^2 +stored +1000\/min /m)
  expect((await project.runWarm(['doctor'])).out).toMatch(
    /^warn +limits +crm key a b: the vendor allows 200\/min, and up to 1000 may arrive in such a window; see/m,
  )
  expect((await limits('unset', 'crm', '--key', 'a b')).out).toMatch(/^crm {2}100\/min, for a b /m)
  expect((await limits()).out).not.toContain('a b:')
  expect((await project.runWarm(['doctor'])).out).toMatch(/^ok +limits /m)

  await limits('set', 'crm', '--key', 'a b', '--rate', '1000/min', '--reason', 'a contract')
  project.write('tasks.ts', tasksFile.replace(`, by: 'accountId' })`, ` })`))
  await project.run(['send', 'sync-contact', '{}', '--tasks', 'tasks.ts', '--json'])
  const left = await limits('unset', 'crm', '--key', 'a b')
  expect(left).toMatchObject({ code: 0, err: 'next: `sluice limits history crm`\n' })
  expect(left.out).toMatch(/^crm {2}100\/min \(version /m)
}, 300_000)

it('an operator sees which keys a vendor’s answers hold, why and until when, and starts their jobs', async () => {
  const { url } = await freshDatabase()
  const project = createProject({ DATABASE_URL: url })
  const sluice = await Sluice.open({ store: url })
  onTestFinished(() => project.close())
  onTestFinished(() => sluice.close())
  project.write('tasks.ts', tasksFile)
  const sent = await project.run(['send', 'sync-contact', '{"accountId":"a1"}', '--tasks', 'tasks.ts', '--json'])
  const id = String(objects(sent.out)[0]?.['id'])
  await addBucket(sluice.db, 'crm', 'a1')
  // A hold of a minute outlasts the commands' starts on a busy machine.
  const fail = (cause: string) =>
    refuse(sluice.db, ['crm:a1'], { waitUs: 60_000_000, text: '401 from crm.example', cause })
  await fail('credential')
  const shown = await project.run(['limits', 'show', 'crm'])
  expect(shown.out).toMatch(
    /^ {2}a1: credential rejected by the vendor once, first .+ ago \(401 from crm\.example\); held for another .+$/m,
  )
  expect(shown.out).toMatch(/^a1 +1 +.+ held: the vendor rejects the credential until /m)
  expect(objects((await project.runWarm(['limits', 'show', 'crm', '--json'])).out)[0]).toMatchObject({
    busiestKeys: [{ key: 'a1', waiting: 1, stop: { kind: 'held' } }],
    refusals: [{ key: 'a1', cause: 'credential', answer: '401 from crm.example', count: 1 }],
  })
  const why = await project.runWarm(['why', id])
  expect(why.out).toContain('or until a request is accepted: the vendor rejects the credential (401 from crm.example)')
  expect(why.out).toContain('correct the credential, then `sluice limits reset crm --key a1`')
  expect((await project.runWarm(['status'])).out).toMatch(
    /^crm +1 +1 +a1: 1 +.+ held: the vendor rejects the credential/m,
  )
  expect(await project.runWarm(['limits', 'reset', 'crm', '--key', 'a2'])).toMatchObject({
    out: 'nothing of limit crm is held\n',
  })
  expect(await project.runWarm(['limits', 'reset', 'crm', '--key', 'a1'])).toMatchObject({
    code: 0,
    out: 'limit crm: 1 key reset\n',
  })
  expect((await project.runWarm(['limits', 'show', 'crm'])).out).not.toContain('rejected')
  await fail('down')
  expect((await project.runWarm(['why', id])).out).toContain('the vendor is down')
  for (let n = 2; n <= 7; n++) await addBucket(sluice.db, 'crm', `a${n}`)
  const others = [2, 3, 4, 5, 6, 7].map((n) => `crm:a${n}`)
  await refuse(sluice.db, others, { waitUs: 60_000_000, text: '503 from crm.example', cause: 'down' })
  const listed = await project.runWarm(['limits'])
  expect(listed.out.match(/^ {2}a\d: not served by the vendor once/gm)).toHaveLength(5)
  expect(listed.out).toContain('\n  and 2 more keys: `sluice limits show crm`\n')
  const whole = await project.runWarm(['limits', 'show', 'crm'])
  expect(whole.out.match(/^ {2}a\d: not served by the vendor once/gm)).toHaveLength(7)
  expect(objects((await project.runWarm(['limits', 'reset', 'crm', '--json'])).out)).toEqual([
    { limit: 'crm', reset: 7 },
  ])
  expect((await project.runWarm(['limits', 'reset', 'crn'])).code).toBe(1)
})
