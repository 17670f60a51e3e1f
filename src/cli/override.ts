/** `sluice limits set`, `unset`, `pin`, `unpin`: an operator's overrides of a limit that code defines. */
import { Command, InvalidArgumentError } from 'commander'
import { SluiceError } from '../core/errors.ts'
import { present } from '../core/fields.ts'
import type { Duration, NumberChanges, Rate } from '../index.ts'
import { hasKeys } from '../operations/limit-line.ts'
import { withLimit } from './known.ts'
import { asJson, keyFlag, printHead, printWarnings } from './limit.ts'

/** The four commands. */
export function overrideCommands(): Command[] {
  const putting = (verb: 'set' | 'pin', text: string) =>
    numbered(new Command(verb).description(text)).action((name: string, flags: Flags, self: Command) =>
      put(verb, name, flags, self),
    )
  const dropping = (verb: 'unset' | 'unpin', text: string) =>
    new Command(verb)
      .description(text)
      .argument('<limit>')
      .option('--key <key>', ofKey)
      .option('--reason <text>', "shown in the limit's history")
      .action((name: string, flags: Partial<Flags>, self: Command) => drop(verb, name, flags, self))
  return [
    putting('set', 'store numbers that override those in code from now on, in every process'),
    dropping('unset', 'remove the stored numbers'),
    putting('pin', 'pin numbers that override those in code and stored ones, for an incident'),
    dropping('unpin', 'remove the pinned numbers'),
  ]
}

const ofKey = 'only for this key of the limit'

interface Flags {
  key?: string
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
    .option('--rate <rate...>', 'one or more rates, such as 50/min; or none')
    .option('--window <rate...>', 'one or more sliding windows, such as 100/h; or none')
    .option('--quota <quota...>', 'one or more calendar quotas, such as 10000/day; or none')
    .option('--zone <zone>', 'time zone of the quotas, such as Europe/Berlin; or none')
    .option('--concurrency <n>', 'jobs at one time; or none', count)
    .option('--burst <n>', 'capacity of a classic token bucket; or none', count)
    .option('--transit <span>', 'how much the transit time to the vendor may vary, such as 200ms; or measured')
    .option('--key <key>', ofKey)
    .requiredOption('--reason <text>', 'shown where jobs wait for the limit, and in its history')
    .addHelpText('after', '\n`none` removes a value; values that are not given stay as they are.')
}

function count(text: string): number | 'none' {
  if (text === 'none') return text
  if (/^\d{1,12}$/.test(text)) return Number(text)
  throw new InvalidArgumentError('It must be a whole number, or none.')
}

/** Converts the options for the library. */
function changesOf({ rate, window, quota, zone, concurrency, burst, transit }: Flags): NumberChanges {
  const toNull = <T>(given: T | 'none' | undefined) => (given === 'none' ? null : given)
  const rates = (given: string[] | undefined) => (given?.join() === 'none' ? null : (given as Rate[] | undefined))
  return {
    rate: rates(rate),
    window: rates(window),
    quota: rates(quota) as NumberChanges['quota'],
    zone: toNull(zone),
    concurrency: toNull(concurrency),
    burst: toNull(burst),
    transit: toNull(transit as Duration | 'measured' | 'none' | undefined),
  }
}

async function put(verb: 'set' | 'pin', name: string, flags: Flags, command: Command): Promise<void> {
  const { reason, key } = flags
  const [out, line] = await withLimit(command, name, ({ limits }) =>
    limits[verb](name, changesOf(flags), { reason, key }),
  )
  if (out.json) return out.object(asJson(line))
  printHead(out, line)
  printWarnings(out, line)
  if (verb === 'set' && line.source === 'pinned')
    out.talk('stored, but the pinned numbers override it until they are unpinned')
  out.hint(`\`sluice limits ${verb === 'set' ? 'unset' : 'unpin'} ${name}${keyFlag(key)}\` undoes it`)
}

async function drop(
  verb: 'unset' | 'unpin',
  name: string,
  { reason, key }: Partial<Flags>,
  command: Command,
): Promise<void> {
  const [out, line] = await withLimit(command, name, async ({ limits }) => {
    if (await limits[verb](name, present({ reason, key }))) {
      // The code may have given up the limit's keys since.
      const whole = await limits.show(name)
      return key !== undefined && hasKeys(whole) ? limits.show(name, { key }) : whole
    }
    const done = verb === 'unset' ? 'stored' : 'pinned'
    throw new SluiceError(
      'SLUICE_NOT_OVERRIDDEN',
      `nothing is ${done} for ${key === undefined ? '' : `key "${key}" of `}limit "${name}"; \`sluice limits\` lists what is`,
    )
  })
  if (out.json) return out.object(asJson(line))
  printHead(out, line)
  out.hint(`\`sluice limits history ${name}${keyFlag(line.key)}\``)
}
