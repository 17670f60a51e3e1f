/** `sluice verify`: proves from the ledger that no limit was exceeded, or shows where. */
import { Command } from 'commander'
import { amount } from '../core/money.ts'
import { present } from '../core/fields.ts'
import { redact, redactText } from '../core/redact.ts'
import type { Exceeded, Verification, Verified } from '../index.ts'
import { time } from './filter.ts'
import { withLimit } from './known.ts'
import { figure, many } from './output.ts'

interface Flags {
  limit?: string
  since?: string
  until?: string
}

/** `sluice verify`. */
export function verifyCommand(): Command {
  return new Command('verify')
    .description('prove from the ledger that no limit was exceeded, or show where (exit code 1)')
    .option('--limit <name>', 'check only this limit')
    .option(
      '--since <time>',
      'check windows that end since 2h, 7d or 2030-01-31T12:00:00Z (default: all in the ledger)',
    )
    .option('--until <time>', 'check windows that end before that time (default: now)')
    .action(run)
}

async function run({ limit, ...flags }: Flags, command: Command): Promise<void> {
  const period = { since: time('--since', flags.since), until: time('--until', flags.until) }
  const [out, proof] = await withLimit(command, limit, (sluice) => sluice.verify(present({ limit, ...period })))
  if (!proof.isProved) process.exitCode = 1
  if (out.json) return out.object(redact(proof))
  const of = inForce(proof.rules)
  for (const rule of of) out.line(`${out.paint(rule.exceeded > 0 ? 'red' : 'green', verdict(rule))}  ${inWords(rule)}`)
  for (const one of proof.exceeded) printExcess(one, (text) => out.line(redactText(text)))
  for (const { limit: name, key, from: after, to: before } of proof.missing)
    out.line(
      redactText(
        `records are missing in the ledger: ${name}${key && ` for ${key}`}, between ${after.toISOString()} and ${before.toISOString()}`,
      ),
    )
  out.talk(summary(proof))
  out.hint(proof.isProved ? '`sluice limits`' : '`sluice verify --json` prints all details')
}

const verdict = ({ exceeded }: Verified): string => (exceeded > 0 ? 'EXCEEDED' : 'proved  ')

/** A limit whose rate is found has many versions. */
const versionsShown = 10

/** Leaves out older versions under which nothing was granted, and those long ago that were kept. */
function inForce(rules: readonly Verified[]): Verified[] {
  const newest = new Map(rules.map(({ limit, version }) => [limit, version]))
  const used = rules.filter(({ limit, version, keys }) => keys > 0 || newest.get(limit) === version)
  return used.filter(({ limit, version, exceeded }) => {
    const later = new Set(used.filter((one) => one.limit === limit && one.version > version).map((one) => one.version))
    return exceeded > 0 || later.size < versionsShown
  })
}

/** Formats what was proved for a rule, in one line: `crm (version 2) rate 100/min: busiest 60.2 s: 98 of 100 allowed (3 keys)`. */
export function inWords({ limit, version, guarantee, rate, most, windowMs, worst, exceeded, keys }: Verified): string {
  const length = guarantee === 'quota' ? 'busiest period' : `busiest ${figure(windowMs / 1_000)} s`
  const where = windowMs === 0 ? 'most at one time' : length
  const what = guarantee === 'bucket' ? rate : `${guarantee} ${rate}`
  const more =
    exceeded === 0 && worst > most
      ? ' (above it: what jobs used beyond their grants, or what was allowed before a change)'
      : ''
  const found = exceeded > 0 ? `; ${many(exceeded, 'window')} held more` : ''
  const [used, allowed] = [worst, most].map((units) => amount(units, currencyOf(rate)))
  return `${limit} (version ${version}): ${what}: ${where}: ${used} of ${allowed} allowed${more} (${many(keys, 'key')})${found}`
}

/** Returns the currency of a rate in money: `USD` of `50 USD/month`. */
function currencyOf(rate: string): string | undefined {
  return /^[\d.]+ ([A-Z]{3})\//.exec(rate)?.[1]
}

function printExcess(
  { limit, key, guarantee, rate, from, to, grants, ...found }: Exceeded,
  line: (text: string) => void,
): void {
  const of = `${limit}${key && ` for ${key}`}`
  const inUnits = (units: number) => amount(units, currencyOf(rate))
  line(
    `${of}: ${inUnits(found.units)} granted where ${inUnits(found.most)} are allowed (${guarantee}), from ${from.toISOString()} to ${to.toISOString()}:`,
  )
  for (const { claim, at, units, jobs } of grants) {
    const named = jobs.length > 0 ? ` jobs ${jobs.join(', ')}` : ''
    line(`  ${at.toISOString()}  ${inUnits(units)}  by ${claim}${named}`)
  }
}

function summary({ isProved, from, to, buckets, grants, others }: Verification): string {
  const what = `${many(grants, 'grant')} of ${many(buckets, 'key')}, ${from.toISOString()} to ${to.toISOString()}${others > 0 ? `; ${many(others, 'unit')} charged for the use of others count in none` : ''}`
  return isProved ? `no window was exceeded: ${what}` : `not proved: ${what}`
}
