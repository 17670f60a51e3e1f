#!/usr/bin/env node
/** Entry of the command line: runs the program, and reports an error in one line with an exit code. */
import { SluiceError } from '../core/errors.ts'
import { fail } from './failure.ts'
import { build } from './program.ts'

async function main(argv: readonly string[]): Promise<number> {
  const program = await build(argv)
  try {
    await program.parseAsync(argv, { from: 'user' })
    return Number(process.exitCode ?? 0)
  } catch (error) {
    return fail(error, argv.includes('--json'), program)
  }
}

// In `sluice jobs | head` the reader ends first; that is not a failure.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit(0)
  const failed = new SluiceError('SLUICE_OUTPUT_FAILED', `output could not be written to stdout: ${error.message}`)
  process.exit(fail(failed, process.argv.includes('--json')))
})

const code = await main(process.argv.slice(2))
await new Promise((resolve) => process.stdout.write('', resolve))
// Pools and timers that a user's tasks keep open must not keep a finished command alive.
process.exit(code)
