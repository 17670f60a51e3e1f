/** The numbers of a limit as rules, which count with its margin. */
import { inspect } from 'node:util'
import { unitsOf, unitsText } from '../core/money.ts'
import { type Duration, parseRate } from '../core/rate.ts'
import { isShort, type Margin, statedMargin } from './margin.ts'
import type { LimitNumbers } from './numbers.ts'
import { calendarOf, quotaRule } from './quota.ts'
import { concurrencyRule, badLimit, currencyOf, levelRule, pacedRules, windowRule, type Written } from './rule.ts'

const concurrencyMax = 1_000_000
/** The store counts the parts of a window in 32 bits. */
const windowUnitsMax = 2 ** 31 - 1

/** The numbers that rules are made of. */
export type Ruled = { [Field in Exclude<keyof LimitNumbers, 'transit'>]?: LimitNumbers[Field] | undefined } & {
  transit?: Duration | 'measured' | undefined
  onStoreError?: 'closed' | 'open' | undefined
}

/**
 * Returns the rules that numbers stand for, and the margin that they count with.
 * @param given the margin; default: the stated one
 * @throws UsageError SLUICE_BAD_LIMIT, SLUICE_BAD_RATE, SLUICE_BAD_DURATION, SLUICE_BAD_ZONE
 */
export function rulesOf(name: string, options: Ruled, given?: Margin) {
  const { burst, concurrency } = options
  const { rates, windows, quotas, currency } = checked(name, options)
  const windowsUs = [...rates, ...windows].map(({ windowUs }) => windowUs)
  const stated = statedMargin(name, options.transit, windowsUs)
  const { grantUs, transitUs } = given ?? stated
  const marginUs = grantUs + transitUs
  const longUs = Math.max(marginUs, stated.grantUs + stated.transitUs)
  const marginOf = ({ windowUs }: Written) => (isShort(windowUs) ? marginUs : longUs)
  const calendar = calendarOf(name, options.zone, options.anchor)
  const rules = [
    ...rates.flatMap((rule) =>
      burst === undefined ? pacedRules(name, rule, marginOf(rule)) : [levelRule(name, rule, burst, marginOf(rule))],
    ),
    ...windows.map((rule) => windowRule(rule, marginOf(rule))),
    ...quotas.map((quota) => quotaRule(name, quota, calendar, longUs)),
    ...(concurrency === undefined ? [] : [concurrencyRule(concurrency)]),
  ]
  return { rules, grantUs, transitUs, currency, hasQuotas: quotas.length > 0 }
}

/** Reads and checks the rates, windows and quotas of a limit. @throws UsageError SLUICE_BAD_LIMIT, SLUICE_BAD_RATE */
function checked(name: string, options: Ruled) {
  const { rate, window, quota, concurrency, burst } = options
  const read = (given: LimitNumbers['rate']): Written[] =>
    (given === undefined ? [] : [given].flat()).map((one) => ({ rate: one, ...parseRate(unitsOf(one).text, one) }))
  const rates = read(rate)
  const windows = read(window)
  const quotas = quota === undefined ? [] : [quota].flat()
  if (rates.length + windows.length + quotas.length === 0 && concurrency === undefined)
    throw badLimit(name, 'it limits nothing; give it a rate, a window, a quota or a concurrency')
  if (quotas.length === 0 && (options.zone !== undefined || options.anchor !== undefined))
    throw badLimit(name, 'zone and anchor belong to a quota, and it has none')
  if (burst !== undefined && !(Number.isSafeInteger(burst) && burst >= 1))
    throw badLimit(name, `burst is ${burst}; it must be a whole number of at least 1`)
  if (burst !== undefined && rates.length === 0)
    throw badLimit(name, 'burst is the capacity of a rate, and it has none')
  if (!['closed', 'open', undefined].includes(options.onStoreError))
    throw badLimit(name, `onStoreError is ${inspect(options.onStoreError)}; it must be 'closed' or 'open'`)
  const isCount = concurrency === undefined || (Number.isSafeInteger(concurrency) && concurrency >= 1)
  if (!isCount || (concurrency ?? 0) > concurrencyMax)
    throw badLimit(
      name,
      `concurrency is ${inspect(concurrency)}; it must be a whole number from 1 to ${concurrencyMax}`,
    )
  const currency = currencyOf(name, [rate ?? [], window ?? [], quotas].flat())
  const vast = windows.find((one) => one.units > windowUnitsMax)
  if (vast !== undefined)
    throw badLimit(
      name,
      `window ${vast.rate}: a window holds at most ${unitsText(windowUnitsMax, currency)}; use a quota`,
    )
  return { rates, windows, quotas, currency }
}
