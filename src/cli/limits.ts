/** `sluice limits`: shows the limits in force, their sources and guarantees, and changes them while everything runs. */
import { Command } from 'commander'
import { present } from '../core/fields.ts'
import { many } from '../core/figures.ts'
import { amount } from '../core/money.ts'
import type { Guarantee, LimitLine, LimitVersion, VendorView } from '../index.ts'
import { numbersInWords } from '../limits/numbers.ts'
import { busiestTable } from './backlog.ts'
import { closeCommand } from './close.ts'
import { withLimit } from './known.ts'
import { learnedRoutes, learnedTable } from './learned.ts'
import { asJson, eachOf, keyFlag, printHead, printWarnings } from './limit.ts'
import { brief, figure, type Output, percent } from './output.ts'
import { overrideCommands } from './override.ts'
import { pause, resume } from './pause.ts'
import { redisCommand } from './redis.ts'
import { rekeyCommand } from './rekey.ts'
import { inStore, whole } from './settings.ts'
import { keyLine, type KeyRoom, keyRooms } from './members.ts'
import { redactText } from '../core/redact.ts'
import { usageCommand } from './usage.ts'

/** `sluice limits` and its commands. */
export function limitsCommand(): Command {
  const command = new Command('limits')
    .description('list the limits in force, their sources, and what each guarantees')
    .action(list)
    .addCommand(
      new Command('show')
        .description('show a limit, and the most that a vendor can see, for each way of counting')
        .argument('<limit>')
        .option('--key <key>', 'as it holds for this key')
        .action(show),
    )
    .addCommand(
      new Command('history')
        .description('list the versions of a limit that were in force, newest first')
        .argument('<limit>')
        .option('--key <key>', 'those of this key, if it has numbers of its own')
        .option('--max <n>', 'list at most n versions', whole(1, 1_000), 20)
        .action(history),
    )
    .addCommand(usageCommand())
  for (const each of overrideCommands()) command.addCommand(each)
  return command
    .addCommand(
      keyed(new Command('pause').description('start no more jobs that use the limit; same as `sluice pause --limit`'))
        .requiredOption('--reason <text>', 'shown where jobs wait for it')
        .action((limit: string, { key, reason }: Given, self: Command) => pause({ ...of(limit, key), reason }, self)),
    )
    .addCommand(
      keyed(new Command('resume').description('end a pause of the limit; same as `sluice resume --limit`')).action(
        (limit: string, { key }: Given, self: Command) => resume(of(limit, key), self),
      ),
    )
    .addCommand(
      keyed(
        new Command('reset').description(
          'start jobs now that wait because the vendor refused, or failed; also in Redis, if REDIS_URL is set',
        ),
      ).action(reset),
    )
    .addCommand(rekeyCommand())
    .addCommand(closeCommand())
    .addCommand(redisCommand())
}

interface Given {
  key?: string
  reason: string
}

function keyed(command: Command): Command {
  return command.argument('<limit>').option('--key <key>', 'only this key of the limit')
}

const of = (limit: string, key: string | undefined) => present({ limit, key })

async function reset(name: string, { key }: Partial<Given>, command: Command): Promise<void> {
  const [out, keys] = await withLimit(command, name, ({ limits }) => limits.reset(name, present({ key })))
  if (out.json) return out.object({ ...of(name, key), reset: keys })
  out.line(keys === 0 ? `nothing of limit ${name} is held` : `limit ${name}: ${many(keys, 'key')} reset`)
  out.hint(`\`sluice limits show ${name}\``)
}

async function list(_: object, command: Command): Promise<void> {
  const [out, lines] = await inStore(command, async ({ limits }, sql) =>
    Promise.all((await limits.list()).map(async (line) => ({ line, keys: await keyRooms(sql, line) }))),
  )
  for (const { line, keys } of lines) {
    if (out.json) out.object(asJson(line, present({ keys })))
    else printLimit(out, line, keys)
  }
  if (lines.length === 0 && !out.json)
    out.talk("no limits are defined yet; a task's limits are defined when a job is sent or a worker starts")
  out.hint(lines.length === 0 ? '`sluice status`' : `\`sluice limits show ${lines[0]?.line.name}\``)
}

/** Prints the definition in force, its source, and what it guarantees for each rule. */
function printLimit(out: Output, line: LimitLine, keys: readonly KeyRoom[] = []): void {
  printHead(out, line)
  for (const promise of line.guarantee.rules) out.line(`  ${promise.text}`)
  for (const one of keys) out.line(`  ${redactText(keyLine(one, line.currency))}`)
  printWarnings(out, line)
}

async function show(name: string, { key }: { key?: string }, command: Command): Promise<void> {
  const [out, { line, keys, learned, busiestKeys }] = await withLimit(command, name, async ({ limits, jobs }, sql) => {
    const shown = await limits.show(name, { key })
    return {
      line: shown,
      keys: await keyRooms(sql, shown),
      learned: await learnedRoutes(sql, name),
      busiestKeys: (await jobs.backlog()).limits.find(({ limit }) => limit === name)?.busiestKeys ?? [],
    }
  })
  if (out.json) return out.object(asJson(line, present({ keys, learned, busiestKeys })))
  printHead(out, line, true)
  out.line('')
  out.line(`${line.guarantee.sentence}${key !== undefined || eachOf(line) === undefined ? '' : ' (for each key)'}.`)
  out.line('')
  out.table(
    [['RULE', 'BURST', 'SUSTAINED', 'OF NOMINAL', 'VENDOR LIMIT', 'SEES AT MOST', 'REFUSES AT MOST'], ...rowsOf(line)],
    ['OF NOMINAL', 'SUSTAINED', 'BURST'],
  )
  for (const one of keys ?? []) out.line(redactText(keyLine(one, line.currency)))
  if (busiestKeys.length > 0) {
    out.line('')
    out.table(busiestTable(busiestKeys))
  }
  if (learned.length > 0) {
    out.line('')
    out.table(learnedTable(learned))
  }
  printWarnings(out, line)
  out.hint(`\`sluice limits history ${name}${keyFlag(key)}\``)
}

/** Makes the rows: each rule with the vendors that state the same limit, and then the vendors that state another. */
function rowsOf({ guarantee: { rules, vendors }, currency }: LimitLine): string[][] {
  const left = new Set(vendors)
  const seen = (view: VendorView) => {
    left.delete(view)
    const way = view.burst === undefined ? view.algorithm : `${view.algorithm} of ${view.burst}`
    return [`${view.limit}, ${way}`, `${view.worst}`, view.refused === Infinity ? 'no bound' : `${view.refused}`]
  }
  const rows = rules.flatMap((rule) => {
    const own = [...left].filter(({ limit }) => limit === rule.rate && rule.kind !== 'concurrency').map(seen)
    const [first = ['', amount(rule.worst, currency), ''], ...others] = own
    return [[...cellsOf(rule, currency), ...first], ...others.map((cells) => ['', '', '', '', ...cells])]
  })
  return [...rows, ...[...left].map((view) => ['', '', '', '', ...seen(view)])]
}

function cellsOf({ kind, rate, burst, perSecond, utilisation }: Guarantee, currency: string | undefined): string[] {
  if (kind === 'concurrency') return [`${kind} ${rate}`, `${burst}`, '', '']
  const name = kind === 'rate' ? rate : `${kind} ${rate}`
  const second = currency === undefined ? figure(perSecond) : amount(Math.floor(perSecond), currency)
  return [name, amount(burst, currency), `${second}/s`, percent(utilisation)]
}

async function history(name: string, flags: { max: number; key?: string }, command: Command): Promise<void> {
  const [out, versions] = await withLimit(command, name, ({ limits }) => limits.history(name, flags))
  if (out.json) return versions.forEach((each) => out.object(each))
  if (versions.length > 0) out.table([['VERSION', 'SOURCE', 'ALLOWS', 'SINCE', 'BY', 'REASON'], ...versions.map(cells)])
  else out.line('this key has never had numbers of its own')
  out.hint(`\`sluice limits show ${name}${keyFlag(flags.key)}\``)
}

function cells({ version, source, numbers, beside, at, by, reason }: LimitVersion): string[] {
  const all = [numbers, ...beside.map((other) => other.numbers)].map(numbersInWords).join(' beside ')
  return [`${version}`, source, all, at.toISOString(), by ?? '', brief(reason ?? '', 60)]
}
