/** Checks properties of fast-check. */
import fc from 'fast-check'

type Arbitraries<Ts> = { [K in keyof Ts]: fc.Arbitrary<Ts[K]> }
/** The values to draw, and what has to hold for them. */
type Property<Ts extends unknown[], R> = [...values: Arbitraries<Ts>, holds: (...values: Ts) => R]

/** Checks that something holds for all values; a number before them: in so many cases, default 100. */
export function forAll<Ts extends [unknown, ...unknown[]]>(...property: Property<Ts, boolean | void>): void
export function forAll<Ts extends [unknown, ...unknown[]]>(
  cases: number,
  ...property: Property<Ts, boolean | void>
): void
export function forAll(...given: unknown[]): void {
  const [numRuns, property] = casesOf(given)
  fc.assert(fc.property(...(property as Parameters<typeof fc.property>)), { numRuns })
}

/** As `forAll`, where that takes time. */
export function forAllInTime<Ts extends [unknown, ...unknown[]]>(
  ...property: Property<Ts, Promise<boolean | void>>
): Promise<void>
export function forAllInTime<Ts extends [unknown, ...unknown[]]>(
  cases: number,
  ...property: Property<Ts, Promise<boolean | void>>
): Promise<void>
export function forAllInTime(...given: unknown[]): Promise<void> {
  const [numRuns, property] = casesOf(given)
  return fc.assert(fc.asyncProperty(...(property as Parameters<typeof fc.asyncProperty>)), { numRuns })
}

function casesOf(given: unknown[]): [cases: number, property: unknown[]] {
  const [first, ...rest] = given
  return typeof first === 'number' ? [first, rest] : [100, given]
}
