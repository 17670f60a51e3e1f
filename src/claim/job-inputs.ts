/** The inputs of claimed jobs that the reply of their claim left out, because they are large. */
import type { Store } from '../db/store.ts'
import type { ClaimedJob } from './claimed-job.ts'

/** Inputs fetched in one query: each may have 256 KiB. */
const inputsMax = 100

/** Reads the inputs and tags that these jobs of a claim lack. A job that another transaction has taken meanwhile is gone. */
export async function fetchInputs(store: Store, jobs: readonly ClaimedJob[], claim: string): Promise<void> {
  const bare = jobs.filter(({ input }) => input === undefined)
  const bySeq = new Map(bare.map((job) => [job.seq, job]))
  const missing = new Set(bare)
  for (let from = 0; from < bare.length; from += inputsMax) {
    const rows = await store.query<{ seq: string; input: unknown; tags: string[] | null }>(
      'select j.seq, j.input, j.tags from sluice.job j where j.id = any ($1::uuid[]) and j.claim = $2',
      [bare.slice(from, from + inputsMax).map(({ id }) => id), claim],
    )
    for (const { seq, input, tags } of rows) {
      const job = bySeq.get(Number(seq))
      if (job === undefined) continue
      Object.assign(job, { input, tags })
      missing.delete(job)
    }
  }
  // The job was cancelled meanwhile, or another worker has it.
  for (const job of missing) job.isGone = true
}
