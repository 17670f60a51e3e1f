/** Tasks of Node for producers in Python. */
import { z } from 'zod'
import { task } from '../../src/index.ts'
import { until } from '../until.ts'

const anything = z.unknown()

/** Tasks, and what they have been called with; `hold` runs until `calls` has 'go'. */
export function tasks() {
  const calls: unknown[] = []
  const note = (input: unknown) => void calls.push(input)
  const total = z.array(z.union([z.number(), z.array(z.number())]))
  const all = [
    task('add', { input: total, run: (input) => (note(input), input.flat().reduce((sum, one) => sum + one, 0)) }),
    task('note', { input: anything, run: note }),
    task('hold', {
      input: anything,
      async run(input, { signal }) {
        note(input)
        await until(() => calls.includes('go') || signal.aborted)
        if (signal.aborted) note('stopped')
      },
    }),
    task('second', {
      input: anything,
      retry: { attempts: 2, base: 2_000, max: 2_000 },
      run: (_, { attempt }) => {
        if (attempt === 1) throw new RangeError('not yet')
        return attempt
      },
    }),
    task('fail', {
      input: anything,
      retry: { attempts: 1, base: 1, max: 1 },
      run: () => {
        throw new RangeError('boom')
      },
    }),
  ]
  return { all, calls }
}
