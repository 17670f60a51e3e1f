/** `sluice limits usage`: what limits have used, by key, day and month. */
import { Command, Option } from 'commander'
import { amount } from '../core/money.ts'
import { present } from '../core/fields.ts'
import { redactText } from '../core/redact.ts'
import type { UsageLine } from '../index.ts'
import { withLimit } from './known.ts'
import { time } from './filter.ts'
import { whole } from './settings.ts'

interface Flags {
  key?: string
  by: 'day' | 'month'
  since?: string
  max: number
}

/** The command. */
export function usageCommand(): Command {
  return new Command('usage')
    .description('show what limits have used, newest first: each limit as a whole, or one limit by its keys')
    .argument('[limit]', 'show the keys of this limit')
    .option('--key <key>', 'only this key of the limit')
    .addOption(new Option('--by <period>', 'the periods').choices(['day', 'month']).default('day'))
    .option('--since <time>', 'from 7d or 2030-01-31T12:00:00Z on (default: 30 days, or 12 months)')
    .option('--max <n>', 'list at most n lines', whole(1, 9_999), 100)
    .action(usage)
}

async function usage(limit: string | undefined, flags: Flags, command: Command): Promise<void> {
  const { key, by, max } = flags
  const since = time('--since', flags.since)
  const [out, found] = await withLimit(command, limit, ({ limits }) =>
    // One more shows whether there are more.
    limits.usage({ by, max: max + 1, ...present({ limit, key, since }) }),
  )
  const lines = found.slice(0, max)
  if (out.json) return lines.forEach((line) => out.object(asJson(line)))
  const subjectOf = (line: UsageLine) => (limit === undefined ? line.limit : redactText(line.key ?? '-'))
  const cells = (line: UsageLine) => [
    line.period,
    subjectOf(line),
    amount(line.units, line.currency),
    amount(line.refunded, line.currency),
  ]
  if (lines.length === 0) out.talk('nothing was used in this time')
  else out.table([[by.toUpperCase(), limit === undefined ? 'LIMIT' : 'KEY', 'USED', 'REFUNDED'], ...lines.map(cells)])
  if (found.length > max) out.talk(`there are more lines; \`--max ${max * 2}\` or \`--key\` shows them`)
  out.hint(
    limit === undefined ? `\`sluice limits usage ${lines[0]?.limit ?? '<limit>'}\`` : `\`sluice limits show ${limit}\``,
  )
}

/** Converts a line for `--json`: `key` is null if the line is of all keys, or the limit has none. */
function asJson({ key, currency, ...line }: UsageLine): object {
  return { ...line, key: key === undefined ? null : redactText(key), currency: currency ?? null }
}
