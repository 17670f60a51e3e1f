/** The cost of a task's jobs in a limit, given by the task instead of the limit. */
import { inspect } from 'node:util'
import { UsageError } from '../core/errors.ts'
import { checkFields } from '../core/fields.ts'
import { capacityOf } from '../limits/cost.ts'
import { checkCost, type Key, type Learning, type Limit } from '../limits/limit.ts'

/** Field paths of values of one kind in an input, four levels deep. */
type PathOf<Value, In, Depth extends 0[] = []> = Depth['length'] extends 4
  ? never
  : In extends readonly unknown[]
    ? never
    : {
        [K in keyof In & string]: In[K] extends Value
          ? K
          : In[K] extends object
            ? `${K}.${PathOf<Value, In[K], [...Depth, 0]>}`
            : never
      }[keyof In & string]

/** A limit of a task, and what each of its jobs takes of it, instead of the limit's own cost. */
export interface CostedLimit<In = never> {
  limit: Limit<In>
  /**
   * A number, the field path of one in the input, or a function of the input; see `Cost`. Default: the limit's own cost.
   */
  cost?: number | PathOf<number, In> | ((input: In) => number) | undefined
  /**
   * The cost is an upper bound, and what a job takes is learned: the cost times a quantile of (settled units / cost) of
   * earlier jobs (`ctx.settle`; 0 is not counted), as soon as 20 are known. Never more than the cost.
   */
  learn?: boolean | LearnOptions<In> | undefined
}

/** How costs are learned; see the fields. */
export interface LearnOptions<In = never> {
  /** The fraction of the last 128 jobs that used no more: above 0, up to 1, default 0.9. */
  quantile?: number | undefined
  /**
   * The field path of a text (up to 200 characters), number or boolean: costs are learned separately for each value, up
   * to 1,000 values for a task. Default: all jobs of the task alike.
   */
  by?: PathOf<Key | null | undefined, In>
}

const quantileDefault = 0.9

/** Returns a limit with the cost that a task gives it. @throws UsageError SLUICE_BAD_COST */
export function withTaskCost(entry: Limit | CostedLimit): Limit {
  if (!('limit' in entry)) return entry
  const { limit, cost = limit.cost, learn = false } = entry
  checkFields('SLUICE_BAD_TASK', `a cost of limit "${limit.name}"`, entry, ['limit', 'cost', 'learn'])
  const checked = checkCost(limit.name, cost, Number.isFinite(capacityOf(limit)))
  if (learn !== false && (cost === 0 || cost === 1))
    throw bad(
      limit.name,
      `a cost of ${inspect(cost)} leaves nothing to learn; give \`cost\`, the most that a job may use`,
    )
  return { ...limit, cost: checked, learn: learning(limit.name, learn) }
}

function learning(name: string, learn: boolean | LearnOptions): Learning | undefined {
  if (learn === false) return undefined
  if (learn !== true && (typeof learn !== 'object' || learn === null))
    throw bad(name, `it is ${inspect(learn)}; it must be true, or an object with \`quantile\` or \`by\``)
  const { quantile = quantileDefault, by } = learn === true ? {} : learn
  if (learn !== true) checkFields('SLUICE_BAD_COST', `\`learn\` of limit "${name}"`, learn, ['quantile', 'by'])
  if (typeof quantile !== 'number' || !(quantile > 0 && quantile <= 1))
    throw bad(name, `quantile is ${inspect(quantile)}; it must be a number above 0, up to 1`)
  if (by !== undefined && (typeof by !== 'string' || by === ''))
    throw bad(name, `by is ${inspect(by)}; it must be a field path of the input`)
  return { quantile, by }
}

function bad(name: string, why: string): UsageError {
  return new UsageError('SLUICE_BAD_COST', `\`learn\` of limit "${name}": ${why}`)
}
