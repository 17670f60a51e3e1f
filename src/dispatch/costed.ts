/** What jobs of a task take of a limit, said by the task in place of the limit. */
import { checkFields } from '../core/fields.ts'
import { capacityOf } from '../limits/cost.ts'
import { checkCost, type Limit } from '../limits/limit.ts'

/** Field paths of the numbers in an input, four levels deep. */
type NumberPath<In, Depth extends 0[] = []> = Depth['length'] extends 4
  ? never
  : In extends readonly unknown[]
    ? never
    : {
        [K in keyof In & string]: In[K] extends number
          ? K
          : In[K] extends object
            ? `${K}.${NumberPath<In[K], [...Depth, 0]>}`
            : never
      }[keyof In & string]

/** A limit of a task, and what each of its jobs takes of it: in place of what the limit says itself. */
export interface CostedLimit<In = never> {
  limit: Limit<In>
  /** A number, the field path of one in the input, or a function of the input; see `Cost`. */
  cost: number | NumberPath<In> | ((input: In) => number)
}

/** A limit with the cost that a task gives it. @throws UsageError SLUICE_BAD_COST */
export function costed(entry: Limit | CostedLimit): Limit {
  if (!('limit' in entry)) return entry
  const { limit, cost } = entry
  checkFields('SLUICE_BAD_TASK', `a cost of limit "${limit.name}"`, entry, ['limit', 'cost'])
  return { ...limit, cost: checkCost(limit.name, cost, Number.isFinite(capacityOf(limit))) }
}
