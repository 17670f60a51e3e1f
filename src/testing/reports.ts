/** The jobs of a task, as a test reads them: which were sent, which a limit holds back, which failed. */
import { inspect } from 'node:util'
import { UsageError } from '../core/errors.ts'
import type { Sql } from '../db/store.ts'
import type { Job } from '../operations/jobs.ts'
import type { Sluice } from '../sluice.ts'

/** A job that a limit holds back. */
export interface Limited<Input> {
  id: string
  input: Input
  limit: string
  /** Undefined: the limit has no keys. */
  key: string | undefined
  /** It cannot start sooner, as far as that is known. */
  notBefore: Date | undefined
}

/** A job whose last attempt failed. */
export interface Refused<Input> {
  id: string
  input: Input
  state: Job['state']
  reason: Job['reason']
  error: Job['error']
}

/** The input of a task's jobs: of `AnyTask` it is unknown. */
export type Sent<Input> = [Input] extends [never] ? unknown : Input

/** A task or an event, whatever its type. */
export interface Named {
  readonly name: string
}

const allSql = `(select id, task from sluice.job union all select id, task from sluice.done
  union all select id, task from sluice.failed) all_jobs`

/** Returns what reads the jobs of a store; see `TestSluice`. */
export function reportsOf(sluice: Sluice, sql: Sql) {
  const jobsOf = async (task: Named) => {
    // A name alone has no jobs, and a test that expects none would pass.
    if (typeof task?.name !== 'string')
      throw new UsageError('SLUICE_BAD_OPTION', `${inspect(task, { depth: 0 })} is no task; give what task(…) returned`)
    const ids = await sql.query<{ id: string }>(`select id from ${allSql} where task = $1 order by id`, [task.name])
    return (await Promise.all(ids.map(({ id }) => sluice.jobs.get(id)))).flatMap((job) => job ?? [])
  }
  const limitedBy = async <Input>({ id, input }: Job): Promise<Limited<Input>[]> => {
    const why = await sluice.why(id)
    const reason = why?.reasons.find(({ limit }) => limit !== undefined)
    if (reason === undefined) return []
    const { limit = '', key = '' } = reason
    // That of all reasons: behind a refusal the job is due when the vendor's wait is over, and the limit may be free sooner.
    const notBefore = why?.notBefore
    return [{ id, input: input as Input, limit, key: key === '' ? undefined : key, notBefore }]
  }
  return {
    sent: async <Input = unknown>(task: Named) => (await jobsOf(task)).map(({ input }) => input as Input),
    limited: async <Input = unknown>(task: Named) =>
      (await Promise.all((await jobsOf(task)).map((job) => limitedBy<Input>(job)))).flat(),
    refused: async <Input = unknown>(task: Named): Promise<Refused<Input>[]> =>
      (await jobsOf(task))
        .filter(({ state, error }) => state === 'failed' || error !== null)
        .map(({ id, input, state, reason, error }) => ({ id, input: input as Input, state, reason, error })),
  }
}
