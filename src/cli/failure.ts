/** What goes wrong, in one line and an exit code: 0 ok, 1 failed, 2 usage, 3 store unreachable. */
import { CommanderError } from 'commander'
import { SluiceError } from '../core/errors.ts'
import { redactText } from '../core/redact.ts'

interface Failure {
  code: string
  message: string
  exit: number
}

/** Says an error on stderr and returns the exit code; undefined says nothing, as for --help. */
export function fail(error: unknown, json: boolean): number {
  const failure = describe(error)
  if (failure === undefined) return 0
  const { code, exit } = failure
  const message = redactText(failure.message)
  const text = json ? JSON.stringify({ error: { code, message } }) : `error ${code}: ${message}`
  // Help for a command without arguments was printed already.
  if (message !== '') process.stderr.write(`${text}\n`)
  if (process.env['SLUICE_DEBUG'] === '1' && error instanceof Error)
    process.stderr.write(`${redactText(String(error.stack))}\n`)
  return exit
}

function describe(error: unknown): Failure | undefined {
  if (error instanceof CommanderError) {
    if (error.exitCode === 0) return undefined
    const message = error.code === 'commander.help' ? '' : flat(error.message.replace(/^error: /, ''))
    return { code: 'SLUICE_USAGE', message, exit: 2 }
  }
  if (SluiceError.is(error)) return { code: error.code, message: flat(error.message), exit: exitOf(error) }
  return { code: 'SLUICE_FAILED', message: flat(error instanceof Error ? error.message : String(error)), exit: 1 }
}

/** By name and code, because the error may come from another copy of this package. */
function exitOf(error: SluiceError): number {
  if (error.code === 'SLUICE_STORE_UNREACHABLE') return 3
  return error.name === 'UsageError' ? 2 : 1
}

/** Messages of other people's errors may have many lines. */
export function flat(text: string): string {
  return text.replaceAll(/\s*\n\s*/g, ' ').trim() || 'unknown error'
}
