/** Data that make claims fail, and a store whose claims are made as workers make them. */
import { beforeEach } from 'vitest'
import { Claims } from '../../src/claim/claim.ts'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import type { Db } from '../../src/db/db.ts'
import { storeOn } from '../../src/db/store.ts'
import { emptied, type Engine, type quietTask } from './engine.ts'

const never = new AbortController().signal
/** The greatest number that a column can hold. */
export const bigintMax = '9223372036854775807'

/** The bad data: the n-th job, lane or bucket of a task and tenant. */
export interface Bad {
  kind: 'job' | 'lane' | 'bucket'
  task: string
  tenant: string
  n: number
}

/** A store whose claims are made as workers make them. */
export function parkedOn(engine: Engine) {
  const at = Object.assign(emptied(engine), { claims: {} as Claims, names: [] as string[] })
  /** Knowledge of one claim does not apply to the next store. */
  const begin = () => {
    at.names = []
    at.claims = new Claims(storeOn(at.db))
    at.claims.onParked = (names) => void at.names.push(...names)
  }
  beforeEach(begin)
  /** All jobs that may begin, up to `most`. */
  const take = async (tasks: readonly string[], most = 100): Promise<ClaimedJob[]> => {
    const all: ClaimedJob[] = []
    for (;;) {
      const claimer = { worker: at.worker, queues: undefined, tasks }
      const { jobs, again } = await at.claims.claim(claimer, most - all.length, { idle: false, ahead: 0 }, never)
      all.push(...jobs)
      if (all.length === most || (jobs.length === 0 && !again)) return all
    }
  }
  /** Sends a job for each tenant, one after the other; resolves to their ids. */
  const send = async (to: ReturnType<typeof quietTask>, ...tenants: string[]) => {
    const sent: string[] = []
    for (const tenant of tenants) sent.push(await at.sluice.send(to, { tenant }))
    return sent
  }
  const ids = async (...args: Parameters<typeof take>) => (await take(...args)).map(({ id }) => id).sort()
  /** Changes the newest ledger row of a bucket. */
  const ledger = (name: string, set: string) =>
    at.db.query(
      `update sluice.ledger set ${set} where ctid = (
         select ctid from sluice.ledger where bucket = sluice.hash64($1) order by at desc, n desc limit 1)`,
      [name],
    )
  const job = (id: string, set: string) => at.db.query(`update sluice.job set ${set} where id = $1`, [id])
  const corrupt = (bads: readonly Bad[]) => corruptIn({ db: at.db, job, ledger }, bads)
  return Object.assign(at, { begin, corrupt, take, send, ids, ledger, job })
}

/** Change rows of a store. */
interface Rows {
  db: Db
  job(id: string, set: string): Promise<unknown>
  ledger(name: string, set: string): Promise<unknown>
}

/** Makes these data bad, if there are such. */
async function corruptIn({ db, job, ledger }: Rows, bads: readonly Bad[]) {
  const names = new Set<string>()
  const mends: (() => Promise<unknown>)[] = []
  for (const { kind, task: of, tenant, n } of bads) {
    const among = `from sluice.job where claim is null and task = '${of}' and input ->> 'tenant' = '${tenant}'`
    const found: Record<Bad['kind'], string> = {
      job: `select id as name ${among} order by seq offset ${n} limit 1`,
      lane: `select id::text as name from sluice.lane where list is not null and id in (select lane ${among}) order by id limit 1`,
      bucket: `select b.name || ':' || b.key as name from sluice.bucket b where b.key = '${tenant}'
                 and exists (select 1 from sluice.ledger l where l.bucket = b.id) order by 1 offset ${n % 2} limit 1`,
    }
    const [{ name } = { name: '' }] = await db.query<{ name: string }>(found[kind])
    if (name === '' || names.has(name)) continue
    names.add(name)
    // A fair key has one turn, so its other lanes fail by the same.
    const fair = `select fair::text as fair from sluice.lane where id::text = $1`
    for (const row of await db.query<{ fair: string }>(fair, [name])) names.add(row.fair)
    const lane = (set: string) =>
      db.query(`update sluice.lane set vstart = ${set} where id = $1 and list is distinct from 1`, [name])
    const set: Record<Bad['kind'], (isBad: boolean) => Promise<unknown>> = {
      job: (isBad) => job(name, `attempt = ${isBad ? 2_147_483_647 : 0}`),
      lane: (isBad) =>
        isBad
          ? db.query(`update sluice.lane set vstart = ${bigintMax} where id = $1`, [name])
          : lane('0').then(() => db.query('update sluice.list set floor = 0 where floor > 4611686018427387904')),
      bucket: (isBad) =>
        ledger(
          name,
          isBad ? `n = ${bigintMax}` : `n = (select count(*) from sluice.ledger where bucket = sluice.hash64($1))`,
        ),
    }
    await set[kind](true)
    mends.push(() => set[kind](false))
  }
  return { names, mend: () => Promise.all(mends.map((mend) => mend())) }
}
