import { expect, it } from 'vitest'
import { Sluice } from '../../src/sluice.ts'
import { freshDatabase } from '../servers/database.ts'
import { createProject, objects, tasksFile } from './program.ts'

it('pause holds jobs back, pauses lists it, why explains it, and resume ends it', async () => {
  const { url } = await freshDatabase()
  const project = createProject({ DATABASE_URL: url })
  try {
    project.write('tasks.ts', tasksFile)
    project.write(
      'sluice.config.ts',
      `import { defineConfig } from 'sluice'
import * as tasks from './tasks.ts'
export default defineConfig({ store: 'not-used', tasks: [tasks.syncContact, tasks.plain] })`,
    )
    await (await Sluice.open({ store: url })).close()
    const dispatched = async () => objects((await project.run(['dispatch', '--once', '--json'])).out)
    const [sent] = objects((await project.run(['send', 'sync-contact', '{"accountId":"a1"}', '--json'])).out)
    const id = String(sent?.['id'])

    const of = ['--limit', 'crm', '--key', 'a1']
    expect(await project.run(['pause', ...of, '--reason', 'the contract ended'])).toMatchObject({
      code: 0,
      out: 'limit crm key a1 is paused\n',
      err: expect.stringContaining('sluice resume --limit crm --key a1'),
    })
    expect(await project.runWarm(['pause', '--queue', 'nightly-*', '--reason', 'maintenance', '--json'])).toMatchObject(
      {
        out: '{"queue":"nightly-*","paused":true}\n',
      },
    )
    expect(await dispatched()).toEqual([{ dispatched: 0 }])
    expect((await project.runWarm(['why', id])).out).toMatch(
      /^- crm \(.* for a1\) is paused since \S+ by \S+@\S+: the contract ended$/m,
    )
    const list = await project.run(['pauses'])
    expect(list.out).toMatch(/^limit crm key a1 +paused +\S+ \S+ +\S+@\S+ +the contract ended$/m)
    expect(list.out).toMatch(/^queue nightly-\* +paused .* maintenance$/m)
    expect(await project.run(['resume', ...of])).toMatchObject({ code: 0, out: 'limit crm key a1 is resumed\n' })
    expect(await dispatched()).toEqual([{ dispatched: 1 }])

    expect(await project.run(['resume', ...of])).toMatchObject({
      code: 1,
      err: expect.stringContaining('SLUICE_NOT_PAUSED'),
    })
    const bad = await project.runWarm(['pause', '--reason', 'x'])
    expect(bad).toMatchObject({ code: 2, err: expect.stringContaining('SLUICE_BAD_PAUSE') })
  } finally {
    await project.close()
  }
})
