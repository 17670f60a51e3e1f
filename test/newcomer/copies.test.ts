/** Several copies of the package in one process. It runs in a process of its own, because it loads the modules anew. */
import { expect, it, vi } from 'vitest'
import { Sluice, useSluice } from '../../src/index.ts'

it('the Sluice that is chosen is the same in every copy of the package, as a workspace may have several', async () => {
  vi.resetModules()
  const copy = await import('../../src/index.ts')
  expect(copy.Sluice).not.toBe(Sluice)
  const sluice = await Sluice.open({ store: 'memory:' })
  useSluice(sluice)
  try {
    expect(await copy.currentSluice()).toBe(sluice)
    const id = await copy.task('copied', { run: () => 1 }).send({})
    expect(await sluice.jobs.get(id)).toMatchObject({ task: 'copied', state: 'waiting' })
    expect(await copy.limit('few', { rate: '5/s' }).take()).toMatchObject({ isUncharged: false })
    const event = await copy.event('copies.one.sent').emit({ n: 1 })
    expect(await sluice.events.show(event)).toMatchObject({ event: { data: { n: 1 } } })
  } finally {
    useSluice(undefined)
    await sluice.close()
  }
})
