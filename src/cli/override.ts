/** `sluice limits set`, `unset`, `pin`, `unpin`: what an operator says of a limit, over what its code says. */
import { Command, InvalidArgumentError } from 'commander'
import { SluiceError } from '../core/errors.ts'
import type { Duration, NumberChanges, Rate } from '../index.ts'
import { asJson, sayHead, sayWarnings } from './limit.ts'
import { settingsOf, withSluice } from './settings.ts'

/** The four commands. */
export function overrideCommands(): Command[] {
  const set = 'store numbers, which stand above what code says from now on, in every process'
  const pin = 'the same above all else, for an incident'
  return [
    numbered(new Command('set').description(set)).action((name: string, flags: Flags, self: Command) =>
      put('set', name, flags, self),
    ),
    taking(new Command('unset').description('take back what was stored')).action(
      (name: string, flags: Flags, self: Command) => drop('unset', name, flags, self),
    ),
    numbered(new Command('pin').description(pin)).action((name: string, flags: Flags, self: Command) =>
      put('pin', name, flags, self),
    ),
    taking(new Command('unpin').description('take back what was pinned')).action(
      (name: string, flags: Flags, self: Command) => drop('unpin', name, flags, self),
    ),
  ]
}

interface Flags {
  rate?: string[]
  window?: string[]
  quota?: string[]
  zone?: string
  concurrency?: number | 'none'
  burst?: number | 'none'
  transit?: string
  reason: string
}

function numbered(command: Command): Command {
  return command
    .argument('<limit>')
    .option('--rate <rate...>', 'one or several, such as 50/min; none: takes it away')
    .option('--window <rate...>', 'the same')
    .option('--quota <quota...>', 'one or several of a calendar, such as 10000/day; or none')
    .option('--zone <zone>', 'whose calendar, such as Europe/Berlin; or none')
    .option('--concurrency <n>', 'jobs at one time; or none', count)
    .option('--burst <n>', 'the classic bucket of this capacity; or none', count)
    .option('--transit <span>', 'how much the way to the vendor may vary, such as 200ms; or none')
    .requiredOption('--reason <text>', 'who finds jobs waiting, or reads the history, will want to know')
    .addHelpText('after', '\nWhat is not named stays as it is.')
}

function taking(command: Command): Command {
  return command.argument('<limit>').option('--reason <text>', 'for the history')
}

function count(text: string): number | 'none' {
  if (text === 'none') return text
  if (/^\d{1,12}$/.test(text)) return Number(text)
  throw new InvalidArgumentError('It must be a whole number, or none.')
}

/** What flags say, as the library takes it. */
function changesOf({ rate, window, quota, zone, concurrency, burst, transit }: Flags): NumberChanges {
  const orNull = <T>(given: T | 'none' | undefined) => (given === 'none' ? null : given)
  const rates = (given: string[] | undefined) => (given?.join() === 'none' ? null : (given as Rate[] | undefined))
  return {
    rate: rates(rate),
    window: rates(window),
    quota: rates(quota) as NumberChanges['quota'],
    zone: orNull(zone),
    concurrency: orNull(concurrency),
    burst: orNull(burst),
    transit: orNull(transit as Duration | 'none' | undefined),
  }
}

async function put(verb: 'set' | 'pin', name: string, flags: Flags, command: Command): Promise<void> {
  const settings = await settingsOf(command)
  const { out } = settings
  const { reason } = flags
  const line = await withSluice(settings, { creates: false }, (sluice) =>
    sluice.limits[verb](name, changesOf(flags), { reason }),
  )
  if (out.json) return out.object(asJson(line))
  sayHead(out, line)
  sayWarnings(out, line)
  if (verb === 'set' && line.source === 'pinned')
    out.talk('stored; what is pinned stands above it until it is unpinned')
  out.hint(`\`sluice limits ${verb === 'set' ? 'unset' : 'unpin'} ${name}\` takes it back`)
}

async function drop(verb: 'unset' | 'unpin', name: string, flags: Flags, command: Command): Promise<void> {
  const settings = await settingsOf(command)
  const { out } = settings
  const why = flags.reason === undefined ? {} : { reason: flags.reason }
  const line = await withSluice(settings, { creates: false }, async (sluice) => {
    if (await sluice.limits[verb](name, why)) return sluice.limits.show(name)
    const done = verb === 'unset' ? 'stored' : 'pinned'
    throw new SluiceError(
      'SLUICE_NOT_OVERRIDDEN',
      `nothing is ${done} for limit "${name}"; \`sluice limits\` shows what is`,
    )
  })
  if (out.json) return out.object(asJson(line))
  sayHead(out, line)
  out.hint(`\`sluice limits history ${name}\``)
}
