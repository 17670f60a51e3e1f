/** Which tasks fail, and by which errors, as `status` and `why` show them. */
import { expect, it, onTestFinished } from 'vitest'
import { fail, task } from '../../src/index.ts'
import { testSluice } from '../../src/testing/index.ts'

it('`status` shows tasks whose jobs are retried, or have failed within the last hour, with the newest error', async () => {
  let why = 'the vendor is down'
  const flaky = task('flaky', {
    retry: { attempts: 3, base: '1min', max: '1min' },
    run: () => {
      throw new Error(why)
    },
  })
  const strict = task('strict', {
    run: () => {
      throw fail('no such customer')
    },
  })
  const fine = task('fine', { run: () => undefined })
  const t = await testSluice({ tasks: [flaky, strict, fine] })
  onTestFinished(() => t.close())
  const failing = () => t.sluice.jobs.failing()
  expect(await failing()).toEqual([])
  await flaky.sendMany([1, 2])
  await strict.send(1)
  await fine.send(1)
  await fine.send(2, { delay: '1d' })
  await t.drain()
  const ended = { task: 'strict', retrying: 0, failed: 1, error: 'no such customer', lastAt: expect.any(Date) }
  expect(await failing()).toMatchObject([{ task: 'flaky', retrying: 2, failed: 0, error: why }, ended])
  why = 'it answers 500'
  await t.drain({ advance: '61s' })
  expect(await failing()).toMatchObject([{ task: 'flaky', retrying: 2, failed: 0, error: why }, ended])
  await t.drain({ advance: '2min' })
  expect(await failing()).toMatchObject([{ task: 'flaky', retrying: 0, failed: 2, error: why }, ended])
  await t.clock.advance('1h')
  expect(await failing()).toEqual([])
})

it('`status` shows that the error of the last attempt was cut', async () => {
  const wordy = task('wordy', {
    run: () => {
      throw new Error('word '.repeat(100))
    },
  })
  const t = await testSluice({ tasks: [wordy] })
  onTestFinished(() => t.close())
  const id = await wordy.send(1)
  await t.drain()
  const why = await t.sluice.why(id)
  expect(why?.reasons.find(({ kind }) => kind === 'retry')?.text).toMatch(
    /^attempt 1 failed, and another one follows: (word )+.{0,4}…$/,
  )
})
