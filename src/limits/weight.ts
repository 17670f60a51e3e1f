/** Weights: how many turns a fair key gets compared with others of weight 1. */
import { inspect } from 'node:util'
import { UsageError } from '../core/errors.ts'

/** Returns a weight if it is valid. @throws UsageError SLUICE_BAD_OPTION */
export function checkWeight(weight: number): number {
  if (isWeight(weight)) return weight
  throw new UsageError('SLUICE_BAD_OPTION', `weight is ${inspect(weight)}; it must be a whole number from 1 to 1000`)
}

/** Returns the weights that a limit gives to its keys. @throws UsageError SLUICE_BAD_LIMIT, SLUICE_BAD_KEY */
export function weightsOf(
  limit: string,
  weights: Readonly<Record<string, number>> | undefined,
  keyed: boolean,
  checkKey: (key: string) => string,
): ReadonlyMap<string, number> {
  const refuse = (why: string): never => {
    throw new UsageError('SLUICE_BAD_LIMIT', `limit "${limit}": ${why}`)
  }
  if (weights === undefined) return new Map()
  if (typeof weights !== 'object' || weights === null || Array.isArray(weights))
    return refuse('its weights are an object, a number for each key: { acme: 3 }')
  if (!keyed) return refuse('its weights belong to keys that an input gives, and it has none; give it `by`')
  for (const [key, weight] of Object.entries(weights)) {
    if (!isWeight(weight))
      refuse(`the weight of ${checkKey(key)} is ${inspect(weight)}; it must be a whole number from 1 to 1000`)
  }
  return new Map(Object.entries(weights).map(([key, weight]) => [checkKey(key), weight]))
}

/** Returns weights in words, the same for the same weights. */
export function weightsInWords(weights: ReadonlyMap<string, number>): string {
  const words = [...weights].map(([key, weight]) => `${key} ${weight}`).toSorted()
  return words.length === 0 ? '' : `, weights ${words.join(', ')}`
}

function isWeight(weight: unknown): boolean {
  return Number.isInteger(weight) && (weight as number) >= 1 && (weight as number) <= 1000
}
