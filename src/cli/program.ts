/** The tree of all commands, with the flags that each has, and examples in each help. */
import { Command, CommanderError, Help, Option } from 'commander'
import { UsageError } from '../core/errors.ts'
import { version } from '../core/version.ts'
import { logFormats, logLevels } from '../report/options.ts'
import { cancelCommand, reprioritiseCommand, retryCommand } from './bulk.ts'
import { completeCommand, completionCommand } from './completion.ts'
import { devCommand } from './dev.ts'
import { dispatchCommand } from './dispatch.ts'
import { doctorCommand } from './doctor.ts'
import { eventsCommand } from './events.ts'
import { examples } from './examples.ts'
import { initCommand } from './init.ts'
import { jobsCommand } from './jobs.ts'
import { limitsCommand } from './limits.ts'
import { migrateCommand } from './migrate.ts'
import { releaseCommand } from './parked.ts'
import { pauseCommand, pausesCommand, resumeCommand } from './pause.ts'
import { pruneCommand } from './prune.ts'
import { schedulesCommand } from './schedules.ts'
import { sendCommand } from './send.ts'
import { statusCommand } from './status.ts'
import { tasksCommand } from './tasks.ts'
import { verifyCommand } from './verify.ts'
import { whyCommand } from './why.ts'
import { workCommand } from './work.ts'

const groups: Record<string, (() => Command)[]> = {
  'Begin:': [initCommand, devCommand],
  'Run:': [workCommand, dispatchCommand, sendCommand],
  'Look:': [
    statusCommand,
    whyCommand,
    jobsCommand,
    tasksCommand,
    limitsCommand,
    pausesCommand,
    schedulesCommand,
    eventsCommand,
  ],
  'Change:': [retryCommand, cancelCommand, reprioritiseCommand, pauseCommand, resumeCommand, releaseCommand],
  'Keep:': [verifyCommand, doctorCommand, migrateCommand, pruneCommand, completionCommand],
}

/** Builds the program. `demo` is loaded only when used, because it needs packages that a production installation lacks. */
export async function build(argv: readonly string[]): Promise<Command> {
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
    .addHelpText(
      'after',
      '\nExit codes: 0 ok; 1 failed, or what was named does not exist; 2 usage; 3 store unreachable.',
    )
  for (const [heading, commands] of Object.entries(groups))
    for (const command of commands) program.addCommand(command().helpGroup(heading))
  const demo = argv.includes('demo')
    ? (await import('./demo.ts')).demoCommand()
    : new Command('demo').description(
        'run 1,500 jobs against a stand-in for a vendor, and prove that no window was exceeded',
      )
  program.addCommand(demo.helpGroup('Begin:'))
  program.addCommand(helpCommand(program).helpGroup('Begin:'))
  program.addCommand(completeCommand(program), { hidden: true })
  equip(program)
  return program
}

/** `sluice help`, which commander has only for commands of one word. */
function helpCommand(program: Command): Command {
  program.helpCommand(false)
  return new Command('help')
    .description('show the help of a command')
    .argument('[command...]', 'its words')
    .action((words: string[]) => {
      let command = program
      for (const [at, word] of words.entries()) {
        const inner = command.commands.find((one) => one.name() === word || one.aliases().includes(word))
        if (inner === undefined) throw noSuchCommand(command, words.slice(0, at), word)
        command = inner
      }
      command.help()
    })
}

function noSuchCommand({ commands }: Command, above: readonly string[], word: string): Error {
  if (above.length === 0) return new CommanderError(2, 'commander.unknownCommand', `unknown command '${word}'`)
  const path = ['sluice', ...above].join(' ')
  const names = commands.map((one) => one.name()).join(', ')
  const text = `\`${path}\` has no command "${word}"; ${names === '' ? 'it has none' : `its commands are ${names}`}`
  return new UsageError('SLUICE_USAGE', text)
}

/** Lets a command throw instead of exiting, and shows the flags of all commands, and its examples, in its help. */
function equip(command: Command, path: readonly string[] = []): void {
  command
    .exitOverride()
    .configureOutput({ outputError() {} })
    .configureHelp({
      showGlobalOptions: true,
      optionDescription: (option) => `${new Help().optionDescription(option)}${option.mandatory ? ' (required)' : ''}`,
    })
  const some = examples[path.join(' ')] ?? []
  if (some.length > 0) command.addHelpText('after', `\nExamples:\n${some.map((line) => `  ${line}`).join('\n')}`)
  for (const inner of command.commands) equip(inner, [...path, inner.name()])
}
