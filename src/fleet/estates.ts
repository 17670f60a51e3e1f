/** Finds the jobs that silent dispatchers have in hand, for the dispatcher that takes them over. */
import type { Claims } from '../claim/claim.ts'
import type { ClaimedJob } from '../claim/claimed-job.ts'
import type { Estate } from '../claim/outlet.ts'
import type { Store } from '../db/store.ts'

/** One claim of a silent dispatcher. */
interface Left {
  worker: string
  claim: string
  begun: string[]
  name: string
}

/** Finds the estates for one dispatcher. */
export class Estates {
  readonly #store: Store
  readonly #claims: Pick<Claims, 'adopt'>
  /** The claims that were found. Jobs that this outlet cannot take over end in time, as those of a lost worker. */
  readonly #known = new Set<string>()

  constructor(store: Store, claims: Pick<Claims, 'adopt'>) {
    this.#store = store
    this.#claims = claims
  }

  /**
   * Returns the estates of dispatchers that have sent no heartbeat for 4 s, each claim once.
   * @param worker the finder
   * @param kin the prefix of the names under which those dispatchers have enlisted
   */
  async find(worker: string, kin: string): Promise<Estate[]> {
    const left = await this.#store.run<Left & Record<string, unknown>>('fleet/take_over_workers', [
      worker,
      kin,
      [...this.#known],
    ])
    const estates = new Map<string, { name: string; from: string; jobs: ClaimedJob[]; begun: Set<ClaimedJob> }>()
    for (const { worker: from, claim, begun, name } of left) {
      const estate = estates.get(from) ?? { name, from, jobs: [], begun: new Set<ClaimedJob>() }
      estates.set(from, estate)
      for (const job of await this.#claims.adopt(claim)) {
        if (job.isGone) continue
        estate.jobs.push(job)
        if (begun.includes(String(job.seq))) estate.begun.add(job)
      }
    }
    // Not before: if the store is away meanwhile, they are found again.
    for (const { claim } of left) this.#known.add(claim)
    return [...estates.values()]
  }
}
