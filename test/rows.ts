/** Inputs of many jobs. */

/** Returns so many equal inputs. */
export function copies<T = object>(length: number, input: T = {} as T): T[] {
  return Array.from({ length }, () => input)
}

/** Returns so many inputs with numbers, from 0. */
export function numbered(length: number): { n: number }[] {
  return Array.from({ length }, (_, n) => ({ n }))
}
