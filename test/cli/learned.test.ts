import { afterAll, expect, it } from 'vitest'
import { Sluice } from '../../src/sluice.ts'
import { freshDatabase } from '../servers/database.ts'
import { createProject, objects, type Project } from './program.ts'

let project: Project | undefined
afterAll(() => project?.close())

it('a third process charges and shows the costs that two processes learned', async () => {
  const { url } = await freshDatabase()
  project = createProject({ DATABASE_URL: url })
  const { run } = project
  project.write(
    'tasks.ts',
    `import { limit, task } from 'sluice'
     import { z } from 'zod'
     const tpm = limit('tpm', { window: '1000000/min' })
     export const ask = task('ask', {
       input: z.object({ max: z.number(), model: z.string() }),
       limits: [{ limit: tpm, cost: 'max', learn: { by: 'model' } }],
       run: ({ max }, { settle }) => settle({ tpm: max * 0.4 }),
     })`,
  )
  const all = ['--tasks', 'tasks.ts']
  const send = (count: number) =>
    run(['send', 'ask', '{"max":1000,"model":"m1"}', ...all, '--repeat', `${count}`, '--json'])
  expect(await send(24)).toMatchObject({ code: 0 })
  await Promise.all([1, 2].map(() => run(['dispatch', '--once', ...all])))
  const [id] = objects((await send(1)).out).map((job) => job['id'])
  const sluice = await Sluice.open({ store: url })
  const rows = await sluice.db.query('select costs[1] as cost from sluice.job where id = $1', [id])
  await sluice.close()
  expect(rows).toEqual([{ cost: 400 }])
  const shown = await run(['limits', 'show', 'tpm'])
  expect(shown.out).toMatch(/^TASK +LEARNED FOR +JOBS +P50 OF COST +P90 +MAX\nask +m1 +24 +40 % +40 % +40 %$/m)
})
