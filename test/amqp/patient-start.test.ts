/** A start that waits for what it needs, and is ended meanwhile. */
import { expect, it } from 'vitest'
import { PatientStart } from '../../src/amqp/patient-start.ts'
import { systemClock } from '../../src/core/clock.ts'
import { StoreError } from '../../src/core/errors.ts'

function created(start: () => Promise<void>) {
  const lines: string[] = []
  const keep = (text: string) => void lines.push(text)
  const log = { debug() {}, info: keep, warn: keep, error: keep }
  return { lines, opening: new PatientStart({ who: 'it', clock: systemClock, log, start }) }
}

it('a start that was ended before begins nothing', async () => {
  let starts = 0
  const { opening } = created(async () => void starts++)
  await opening.end()
  await opening.begin()
  expect(starts).toBe(0)
})

it('a start that is ended while its first try fails does not say that it waits', async () => {
  let fail: (error: Error) => void = () => {}
  const { lines, opening } = created(() => new Promise((_, reject) => (fail = reject)))
  const begun = opening.begin()
  const ended = opening.end()
  fail(new StoreError('SLUICE_BROKER_UNREACHABLE', 'away'))
  await Promise.all([begun, ended])
  expect(lines).toEqual([])
})
