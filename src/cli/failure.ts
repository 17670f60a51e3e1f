/** Reports an error in one line, with an exit code: 0 ok, 1 failed, 2 usage, 3 store unreachable. */
import { type Command, CommanderError } from 'commander'
import { SluiceError, textOfError, codeOf, privilegeAdvice } from '../core/errors.ts'
import { printable, quoted } from '../core/printable.ts'
import { redactText } from '../core/redact.ts'
import { meant, meantFlag, meantOptions } from './hints.ts'
import { asCalled, type StoreFlags } from './output.ts'

interface Failure {
  code: string
  message: string
  exit: number
}

/** Writes an error to stderr and returns the exit code; writes nothing for --help and --version. */
export function fail(error: unknown, json: boolean, program?: Command): number {
  const failure = describe(error, program)
  if (failure === undefined) return 0
  const { code, exit } = failure
  const message = redactText(asCalled(failure.message, program?.opts<StoreFlags>() ?? {}))
  const text = printable(json ? JSON.stringify({ error: { code, message } }) : `error ${code}: ${message}`)
  // The message is empty if help was printed for a command without arguments.
  if (message !== '') process.stderr.write(`${text}\n`)
  if (process.env['SLUICE_LOG_LEVEL'] === 'debug' && error instanceof Error)
    process.stderr.write(`${redactText(String(error.stack))}\n`)
  return exit
}

function describe(error: unknown, program: Command | undefined): Failure | undefined {
  if (error instanceof CommanderError) {
    if (error.exitCode === 0) return undefined
    const message = error.code === 'commander.help' ? '' : joinLines(error.message.replace(/^error: /, ''))
    return { code: 'SLUICE_USAGE', message: withHint(error.code, message, program), exit: 2 }
  }
  if (SluiceError.is(error)) return { code: error.code, message: joinLines(error.message), exit: exitOf(error) }
  const [text, state] = [textOfError(error), String(codeOf(error))]
  const hint = byState[state]
  const message = joinLines(hint === undefined ? text : `${text}; ${hint}`)
  return state === denied
    ? { code: 'SLUICE_NO_PRIVILEGE', message, exit: 2 }
    : { code: 'SLUICE_FAILED', message, exit: 1 }
}

/** PostgreSQL's insufficient_privilege. */
const denied = '42501'

/** The next step after an error of PostgreSQL, or of Node, that a server, a disk, or a command's address or user causes. */
const byState: Record<string, string> = {
  // disk_full
  '53100':
    'make room on the disk of the database; nothing that was acknowledged is lost, and workers go on by themselves',
  // too_many_connections
  '53300': 'raise max_connections, use a pooler, or set `connections` lower in each process',
  // read_only_sql_transaction
  '25006': 'is this a replica? DATABASE_URL has to name the primary server',
  EROFS: 'run it in a directory that can be written to',
  [denied]: privilegeAdvice,
}

/** Replaces commander's suggestion where an unknown word is called otherwise here. */
function withHint(code: string, message: string, program: Command | undefined): string {
  const [, what = '', word = ''] = /^unknown (command|option) '([^' =]+)/.exec(message) ?? []
  const bare = message.replace(/ \(Did you mean .*\)$/, '')
  if (code === 'commander.unknownCommand' && what === 'command' && program !== undefined) {
    const known = meant(word, program)
    return known === undefined ? `${message}; \`sluice --help\` lists all` : `${bare}; it is \`sluice ${known}\` here`
  }
  const [, above = ''] = /^too many arguments for '(.+?)'/.exec(message) ?? []
  const { commands: inner = [], args = [] } = program?.commands.find((one) => one.name() === above) ?? {}
  if (code === 'commander.excessArguments' && inner.length > 0) {
    const text = `\`sluice ${above}\` has no such command; its commands are ${inner.map((one) => one.name()).join(', ')}`
    const elsewhere = program?.commands.find((one) => one.name() === args[0])?.name()
    if (elsewhere !== undefined) return `${text}; there is \`sluice ${elsewhere}\``
    // It may be the name, or the id, of what a command below shows.
    if (args.length > 1 || !inner.some((one) => one.name() === 'show')) return text
    return `${text}; \`sluice ${above} show ${quoted(args[0] ?? '')}\` shows that one`
  }
  if (code === 'commander.excessArguments' && meantOptions(above) !== undefined)
    return `${message.replace(/\.$/, '')}; ${meantOptions(above)}`
  const flag = code === 'commander.unknownOption' ? meantFlag(word) : undefined
  return flag === undefined ? message : `${bare}; here: ${flag}`
}

/** Decides by name and code, because the error may come from another copy of this package. */
function exitOf(error: SluiceError): number {
  if (error.code === 'SLUICE_STORE_UNREACHABLE') return 3
  // The command is well formed; what it names is not there.
  if (error.code.includes('_NO_SUCH_')) return 1
  return error.name === 'UsageError' ? 2 : 1
}

/** Joins the lines of a message into one. */
export function joinLines(text: string): string {
  return text.replaceAll(/\s*\n\s*/g, ' ').trim() || 'unknown error'
}
