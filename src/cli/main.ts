#!/usr/bin/env node
/** Entry of the command line: builds the program, runs it, and reports an error in one line with an exit code. */
import { Command, Option } from 'commander'
import { SluiceError } from '../core/errors.ts'
import { version } from '../core/version.ts'
import { logFormats, logLevels } from '../report/options.ts'
import { cancelCommand, reprioritiseCommand, retryCommand } from './bulk.ts'
import { devCommand } from './dev.ts'
import { dispatchCommand } from './dispatch.ts'
import { doctorCommand } from './doctor.ts'
import { fail } from './failure.ts'
import { initCommand } from './init.ts'
import { jobsCommand } from './jobs.ts'
import { limitsCommand } from './limits.ts'
import { migrateCommand } from './migrate.ts'
import { releaseCommand } from './parked.ts'
import { pauseCommand, pausesCommand, resumeCommand } from './pause.ts'
import { schedulesCommand } from './schedules.ts'
import { pruneCommand } from './prune.ts'
import { sendCommand } from './send.ts'
import { statusCommand } from './status.ts'
import { verifyCommand } from './verify.ts'
import { whyCommand } from './why.ts'
import { workCommand } from './work.ts'

async function build(argv: readonly string[]): Promise<Command> {
  const program = new Command('sluice')
    .description('durable jobs in PostgreSQL that never exceed a rate limit')
    .version(version)
    .option('--store <store>', 'postgres://… or a directory (env DATABASE_URL; default .sluice/data)')
    .option('--schema <name>', 'schema in the database (env SLUICE_SCHEMA; default sluice)')
    .option('--config <file>', 'config file (default: the nearest sluice.config.ts, .js or .mjs, upward)')
    .option('--json', 'print JSON: one object, or one a line for lists')
    .addOption(
      new Option('--log-level <level>', 'least level of log lines (env SLUICE_LOG_LEVEL; default info)').choices(
        logLevels,
      ),
    )
    .addOption(
      new Option(
        '--log-format <format>',
        'text or json (env SLUICE_LOG_FORMAT; default text, json with --json)',
      ).choices(logFormats),
    )
    .addOption(new Option('--no-color', 'print without colours (env NO_COLOR)'))
    .addHelpText('after', '\nExit codes: 0 ok, 1 failed, 2 usage, 3 store unreachable.')
  const commands = [
    initCommand,
    devCommand,
    workCommand,
    sendCommand,
    dispatchCommand,
    jobsCommand,
    whyCommand,
    retryCommand,
  ]
  const further = [
    cancelCommand,
    reprioritiseCommand,
    pauseCommand,
    resumeCommand,
    pausesCommand,
    releaseCommand,
    statusCommand,
    limitsCommand,
    verifyCommand,
    schedulesCommand,
    pruneCommand,
    migrateCommand,
    doctorCommand,
  ]
  for (const command of [...commands, ...further]) program.addCommand(command())
  // Loaded only when used, because it needs packages that a production installation does not have.
  if (argv.includes('demo')) program.addCommand((await import('./demo.ts')).demoCommand(), { hidden: true })
  throwing(program)
  return program
}

function throwing(command: Command): void {
  command.exitOverride().configureOutput({ outputError() {} })
  for (const inner of command.commands) throwing(inner)
}

async function main(argv: readonly string[]): Promise<number> {
  try {
    await (await build(argv)).parseAsync(argv, { from: 'user' })
    return Number(process.exitCode ?? 0)
  } catch (error) {
    return fail(error, argv.includes('--json'))
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
