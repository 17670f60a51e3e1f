/** Money as limits count it: whole millionths of a currency's unit, such as 2,000 for 0.002 USD. */
import { inspect } from 'node:util'
import { UsageError } from './errors.ts'

/** An amount of money for each period: `'50 USD/month'`, with at most 6 decimals. */
export type Money<Period extends string> = `${number} ${Uppercase<string>}/${Period}`

/** Units of a limit in one unit of its currency. */
export const microsEach = 1_000_000

/** Most units of an amount: a thousand million of the currency, so that all arithmetic is exact. */
const microsMax = 1e15

/**
 * Converts an amount of money to the units of a limit in money, rounded up to the next millionth.
 * @param value 0 to 1,000,000,000, in the currency of the limit
 * @throws UsageError SLUICE_BAD_COST
 * @example limit('openai-spend', { quota: '50 USD/month', cost: ({ tokens }) => money(tokens * 0.00001) })
 */
export function money(value: number): number {
  const micros = value * microsEach
  if (typeof value !== 'number' || !(micros >= 0 && micros <= microsMax))
    throw new UsageError(
      'SLUICE_BAD_COST',
      `money(${inspect(value, { depth: 0 })}): an amount is a number from 0 to 1,000,000,000`,
    )
  const nearest = Math.round(micros)
  // The error of floating point in 1.1 * 1,000,000 is no part of the amount.
  return Math.abs(micros - nearest) <= nearest * 1e-12 ? nearest : Math.ceil(micros)
}

/** Formats units for people: as money, `0.002 USD`, if there is a currency. */
export function amount(units: number, currency: string | null | undefined): string {
  if (currency === null || currency === undefined) return `${units}`
  const [whole = '0', fraction = ''] = (Math.abs(units) / microsEach).toFixed(6).split('.')
  const cents = fraction.replace(/0+$/, '')
  const digits = cents === '' ? '' : `.${cents.padEnd(2, '0')}`
  return `${units < 0 ? '-' : ''}${whole}${digits} ${currency}`
}

/**
 * Reads a quota, rate or window in money, `50 USD/month`, as one in units, `50000000/month`; any other text stays as it is.
 * @throws UsageError SLUICE_BAD_RATE
 */
export function unitsOf(text: string): { text: string; currency: string | undefined } {
  const match = /^(\d{1,10})(?:\.(\d{1,6}))? ([A-Z]{3})(\/.*)$/.exec(text)
  if (match === null) {
    if (!/^[^/]*(\p{Sc}|\d\s*[A-Za-z]{3}\b)[^/]*\//u.test(text)) return { text, currency: undefined }
    throw new UsageError(
      'SLUICE_BAD_RATE',
      `"${text}" is no amount of money: write for example '50 USD/month', with at most 6 decimals and a currency of three capital letters`,
    )
  }
  const [, whole = '', fraction = '', currency, per = ''] = match
  const micros = Number(whole) * microsEach + Number(fraction.padEnd(6, '0'))
  if (micros <= microsMax) return { text: `${micros}${per}`, currency }
  throw new UsageError('SLUICE_BAD_RATE', `"${text}": a limit in money holds at most 1,000,000,000 ${currency}`)
}

/** Formats units for people, with their name: `0.002 USD`, `5 units`. */
export function unitsText(units: number, currency: string | null | undefined): string {
  return currency === null || currency === undefined ? `${units} units` : amount(units, currency)
}
