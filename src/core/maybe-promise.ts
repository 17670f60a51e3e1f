/** Values that are promises only if something is asynchronous. */

/** A value, or a promise of one. Where each job or message would need a promise, promises make most of the garbage. */
export type MaybePromise<T> = T | Promise<T>

/** True for a promise. Not checked by class: programs may replace the global one. */
export function isPromise<T>(soon: MaybePromise<T>): soon is Promise<T> {
  return typeof (soon as Partial<Promise<T>> | undefined)?.then === 'function'
}
