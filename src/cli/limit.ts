/** How the command line shows one limit. */
import { systemClock } from '../core/clock.ts'
import { redact, redactText } from '../core/redact.ts'
import { quoted } from '../core/printable.ts'
import type { KeyNumbers, LimitLine, LimitOthers, LimitRefusal } from '../index.ts'
import { numbersInWords } from '../limits/numbers.ts'
import { ago, brief, many, type Output, percent, span } from './output.ts'

/** Converts a limit for `--json`, with more fields. A key may be a URL with its token. */
export function asJson(line: LimitLine, more: object = {}): object {
  const { numbers, path, label, pool: _, at, by, reason, guarantee, paused, share = null, ...rest } = line
  const { sentence, rules, vendors, warning = null } = guarantee
  return redact({
    ...rest,
    numbers,
    rates: ratesOf(line),
    path: path ?? null,
    label: label ?? null,
    definedAt: at,
    by: by ?? null,
    reason: reason ?? null,
    paused: paused.map((key) => key ?? null),
    share,
    guarantees: rules,
    sentence,
    // JSON has no Infinity; null means that there is no bound.
    vendors: vendors.map((view) => ({ ...view, refused: Number.isFinite(view.refused) ? view.refused : null })),
    vendorWarning: warning,
    ...more,
  })
}

function ratesOf({ guarantee }: LimitLine): string[] {
  return guarantee.rules.map(({ kind, rate }) => (kind === 'rate' ? rate : `${kind} ${rate}`))
}

/** Returns what has a bucket of its own under the limit, in words; undefined: there is only one bucket. */
export function eachOf({ keyed: isKeyed, path, label, pool }: LimitLine): string | undefined {
  if (label !== undefined) return `label ${label}`
  if (pool !== undefined) return `of its ${pool.length} members`
  return isKeyed ? (path ?? 'key (a function of the input)') : undefined
}

/** Returns the option for a key in a command that is to be copied. */
export function keyFlag(key: string | undefined): string {
  return key === undefined ? '' : ` --key ${quoted(key)}`
}

/** How many keys of a limit a list of limits shows, so that it stays readable when a vendor is down. */
const shownKeys = 5

/** Prints the definition in force, its source, and what the other sources define; `all`: the state of all keys. */
export function printHead(out: Output, line: LimitLine, all = false): void {
  const each = eachOf(line)
  const whose = line.key !== undefined ? `for ${redactText(line.key)}` : each === undefined ? '' : `for each ${each}`
  const rates = [ratesOf(line).join(' and '), whose].filter((text) => text !== '').join(', ')
  out.line(`${out.paint('bold', line.name)}  ${rates} (version ${line.version}, ${marginInWords(line)})`)
  for (const text of [...definitionLines(line), ...keyLines(line, all ? Infinity : shownKeys)]) out.line(`  ${text}`)
}

/** Returns where the definition in force comes from, and what belongs to it. */
function definitionLines({ source, sources, beside, adaptive, share }: LimitLine): string[] {
  const lines: string[] = []
  const defined = sources[source]
  if (source !== 'code' && defined !== undefined)
    lines.push(`${source} ${ago(defined.at)} by ${defined.by}: ${brief(defined.reason ?? '', 80)}`)
  for (const { numbers, by } of beside)
    lines.push(`${numbersInWords(numbers)} holds as well: live processes have it in their code (${by})`)
  for (const [other, { numbers }] of Object.entries(sources))
    if (other !== source) lines.push(`overridden: ${other === 'code' ? 'in code' : other} ${numbersInWords(numbers)}`)
  if (adaptive !== undefined) {
    const later = source === 'code' || source === 'found' ? '' : ', once the operator’s numbers are removed'
    lines.push(`adaptive: the rate is found between ${adaptive.floor} and ${adaptive.ceiling}${later}`)
  }
  if (share !== undefined)
    lines.push(
      `${percent(share.part)} are reserved for jobs of share ${share.name}; others may use them when they were idle for ${span(share.lendAfterMs)}`,
    )
  return lines
}

/** Returns the state of a limit's keys: those that are paused, have numbers of their own, were refused, or are used by others. */
function keyLines(line: LimitLine, most: number): string[] {
  const { name, source, paused, refusals, others } = line
  const omitted = (n: number) => (n > most ? [`and ${many(n - most, 'more key')}: \`sluice limits show ${name}\``] : [])
  const keys = [...paused.slice(0, most).map((one) => one ?? 'all keys'), ...omitted(paused.length)]
  const own = line.key === undefined ? line.keyNumbers.map((one) => ownLine(one, source)) : []
  const lists = [own, refusals.map(refusalLine), others.map(othersLine)]
  const texts = lists.flatMap((list) => [...list.slice(0, most), ...omitted(list.length)])
  return [...(paused.length === 0 ? [] : [`paused: ${keys.join(', ')}`]), ...texts].map(redactText)
}

function marginInWords({ marginMs, lifeMs, isMeasured }: LimitLine): string {
  if (!isMeasured) return `margin ${marginMs} ms`
  return `margin ${marginMs} ms as measured: a grant lives ${lifeMs} ms, the way varies by ${marginMs - lifeMs} ms`
}

function othersLine({ key, units, at }: LimitOthers): string {
  return `${key === undefined ? '' : `${key}: `}others have used ${units} in the last 24 hours, as the vendor's counts show (last seen ${ago(at)})`
}

function ownLine({ key, source, numbers, by, reason, at }: KeyNumbers, ofAll: string): string {
  const overridden = ofAll === 'pinned' && source === 'stored' ? 'overridden by the pinned numbers: ' : ''
  return `${key}: ${overridden}${numbersInWords(numbers)}, ${source} ${ago(at)} by ${by}: ${brief(reason ?? '', 80)}`
}

const deeds = { refused: 'refused', credential: 'credential rejected', down: 'not served' } as const

function refusalLine({ key, cause, answer, count, since, heldUntil }: LimitRefusal): string {
  const leftMs = heldUntil.getTime() - systemClock.wallMs()
  const next = leftMs > 0 ? `held for another ${span(leftMs)}` : 'the next request shows whether it accepts them again'
  const times = count === 1 ? 'once' : `${count} times in a row`
  return `${key === undefined ? '' : `${key}: `}${deeds[cause]} by the vendor ${times}, first ${ago(since)} (${answer}); ${next}`
}

/** Prints warnings: what could exceed the vendor's limit, and what is inconsistent. */
export function printWarnings(out: Output, { guarantee, warning }: LimitLine): void {
  for (const text of [guarantee.warning, warning])
    if (text !== undefined) out.line(`  ${out.paint('yellow', 'warning')}: ${text}`)
}
