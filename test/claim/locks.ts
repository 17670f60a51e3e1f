/** Watches the locks that the SQL takes, in the order in which it takes them; docs/architecture.md has that order, under "Locks". */
import pg from 'pg'
import { Sluice } from '../../src/sluice.ts'
import { fn } from '../servers/fn.ts'
import { freshDatabase } from '../servers/database.ts'

/** A lock that a transaction took. */
export interface Taken {
  /** `1397511523 -8` (an advisory lock), `class row` (a row that stood already), `class key` (one that is inserted). */
  of: string
  /** The columns or numbers that identify this lock. */
  key: Record<string, string | null>
  /** The transaction did not wait for the lock: it would have left it out. */
  isTried: boolean
  /** The functions that ran, the innermost first. */
  by: string[]
}

/** Tables whose rows are only inserted, and never conflict. */
const silent = ['migration', 'step', 'firing', 'test_clock']

/**
 * Functions with the names of the server's lock functions, earlier in the search path of the whole database. They record the lock
 * and then request it. A trigger that fires before a row is written records it; the server has locked the row by then.
 */
const watching = `
  create schema spy;
  create table spy.taken (n bigserial, xid xid8, of text, key jsonb, tried boolean, context text);
  create function spy.note(p_of text, p_key jsonb, p_tried boolean) returns boolean language plpgsql as $$
  declare
    v_context text;
  begin
    get diagnostics v_context = pg_context;
    insert into spy.taken (xid, of, key, tried, context) values (pg_current_xact_id(), p_of, p_key, p_tried, v_context);
    return true;
  end $$;
  create function spy.pg_advisory_xact_lock(a integer, b integer) returns void language plpgsql as $$
  begin perform spy.note(a::text, to_jsonb(b), false); perform pg_catalog.pg_advisory_xact_lock(a, b); end $$;
  create function spy.pg_advisory_xact_lock_shared(a integer, b integer) returns void language plpgsql as $$
  begin perform spy.note(a::text, to_jsonb(b), false); perform pg_catalog.pg_advisory_xact_lock_shared(a, b); end $$;
  create function spy.pg_try_advisory_xact_lock(a integer, b integer) returns boolean language plpgsql as $$
  begin return pg_catalog.pg_try_advisory_xact_lock(a, b) and spy.note(a::text, to_jsonb(b), true); end $$;
  create function spy.pg_try_advisory_xact_lock_shared(a integer, b integer) returns boolean language plpgsql as $$
  begin return pg_catalog.pg_try_advisory_xact_lock_shared(a, b) and spy.note(a::text, to_jsonb(b), true); end $$;
  create function spy.row() returns trigger language plpgsql as $$
  begin
    if tg_op = 'INSERT' then perform spy.note(tg_table_name || ' key', to_jsonb(new), false); return new; end if;
    perform spy.note(tg_table_name || ' row', to_jsonb(old), false);
    if tg_op = 'DELETE' then return old; end if;
    return new;
  end $$;
  grant usage on schema spy to public;
  grant all on all tables in schema spy to public;
  grant all on all sequences in schema spy to public`

/** A store whose locks are watched. */
export interface Watched {
  sluice: Sluice
  /** Returns the locks that each transaction took since the last call. */
  taken: () => Promise<Taken[][]>
}

/** Opens one. */
export async function watchedStore(): Promise<Watched> {
  const { url, adminUrl } = await freshDatabase()
  const admin = new pg.Client(adminUrl)
  await admin.connect()
  await admin.query(watching)
  await admin.query(
    `do $$ begin execute format('alter database %I set search_path = spy, pg_catalog, public', current_database()); end $$`,
  )
  await admin.end()
  const sluice = await Sluice.open({ store: url })
  const tables = await sluice.db.query<{ name: string; kind: string }>(
    `select relname as name, relkind as kind from pg_class where relnamespace = 'sluice'::regnamespace and relkind in ('r', 'p') and not relispartition
     and relname <> all ($1)`,
    [silent],
  )
  // Statistics would change plans at random, and rows that are read but not locked would be recorded.
  for (const { name } of tables.filter(({ kind }) => kind === 'r'))
    await sluice.db.query(`alter table sluice.${name} set (autovacuum_enabled = off)`)
  for (const { name } of tables)
    await sluice.db.query(
      `create trigger spy before ${name === 'arrival' ? '' : 'insert or '}update or delete on sluice.${name} for each row execute function spy.row()`,
    )
  const functions = await sluice.db.query<{ name: string; text: string }>(
    `select proname as name, pg_get_functiondef(oid) as text from pg_proc where pronamespace = '${fn}'::regnamespace`,
  )
  for (const { text } of functions) if (noted(text) !== text) await sluice.db.query(noted(text))
  const trying = new Set(
    functions.filter(({ text }) => /skip locked|for update nowait|\.lock_job\(/.test(text)).map(({ name }) => name),
  )
  await sluice.db.query('delete from spy.taken')
  return { sluice, taken: () => read(sluice, trying) }
}

/** Marks rows that are recorded before they are sorted, and locked after. */
const sorted = ` || '{"sorted": true}'`

/** Makes a `for update` that waits record its row before it locks it. */
function noted(text: string): string {
  const waits =
    /(from sluice\.(\w+)(?: (?!where|join|for|order)(\w+))?\b(?:(?!from sluice\.)[^;])*?)((?: order by [\w., ]+)?\s+for update(?! of \w+ skip| skip| nowait))/g
  return text.replaceAll(
    waits,
    (_, query: string, table: string, alias: string | undefined, lock: string) =>
      `${query} ${/\bwhere\b/.test(query) ? 'and' : 'where'} spy.note('${table} row', to_jsonb(${alias ?? table})${lock.includes('order by') ? sorted : ''}, false) ${lock}`,
  )
}

/** Reads the locks that each transaction took since the last call, in order. */
async function read(sluice: Sluice, trying: ReadonlySet<string>): Promise<Taken[][]> {
  const rows = await sluice.db.query<{ xid: string; of: string; key: Taken['key']; tried: boolean; context: string }>(
    `with gone as (delete from spy.taken returning *) select xid::text, of, tried, context, case jsonb_typeof(key)
     when 'object' then (select jsonb_object_agg(k, v) from jsonb_each_text(key) e (k, v)) else jsonb_build_object('n', key::text) end as key
     from gone order by n`,
  )
  const all = new Map<string, Taken[]>()
  for (const { xid, of, key, tried, context } of rows) {
    const by = [...context.matchAll(/function (?:\w+\.)?(\w+)\(/g)]
      .map(([, name]) => name ?? '')
      .filter((name) => name !== 'note' && name !== 'row' && !name.startsWith('pg_'))
    const isRow = of.endsWith(' row')
    all.set(xid, [...(all.get(xid) ?? []), { of, key, isTried: tried || (isRow && trying.has(by[0] ?? '')), by }])
  }
  return [...all.values()]
}

/** A line of the table of locks that are waited for. */
export interface Kind {
  rank: number
  name: string
  /** A transaction takes locks of this kind in the order of growing keys. */
  isOrdered: boolean
}

/** Reads that table from docs/architecture.md, by the texts of `Taken.of`, and the names of the advisory locks that are only tried. */
export function lockOrder(text: string): { waited: Map<string, Kind>; tried: Map<string, string> } {
  const section = text.slice(text.indexOf('\n## Locks\n'))
  const lines = section.matchAll(/^\|\s*(\d+|tried)\s*\|([^|]+)\|([^|]+)\|([^|]*)\|/gm)
  const waited = new Map<string, Kind>()
  const tried = new Map<string, string>()
  for (const [, rank = '', name = '', locks = '', order = ''] of lines)
    for (const [, lock = ''] of locks.matchAll(/`([^`]+)`/g)) {
      if (rank === 'tried') tried.set(lock, name.trim())
      else waited.set(lock, { rank: Number(rank), name: name.trim(), isOrdered: order.trim() !== '' })
    }
  return { waited, tried }
}

const spaces = { bucket: '1397511523', class: '1397511524', worker: '1397511525' }

/** The text of `Taken.of`; advisory locks that exist for each worker, class or bucket get the name of their space. */
function lockOf({ of, key }: Taken): string {
  if (of === 'job row' && key['claim'] === null) return 'waiting row'
  if (/ /.test(of)) return of.replace(/^(done|failed)(_\w+)? /, 'history ')
  if (of === spaces.worker) return `${of} worker`
  return Number(key['n']) < 0 ? `${of} ${key['n']}` : `${of} ${of === spaces.class ? 'class' : 'bucket'}`
}

const stripe = (id: string | null | undefined) => String(BigInt.asUintN(10, BigInt(id ?? 0)))

/** Rows that no transaction waits for while their writer holds these advisory locks; docs/architecture.md lists them, too. */
const safe: Record<string, (key: Taken['key'], holds: (space: string, n: string) => boolean) => boolean> = {
  lane: (key, holds) => holdsClass(key, holds),
  reservation: (key, holds) => holdsClass(key, holds),
  list: (key, holds) => (key['id'] === '0' ? holdsClass(key, holds) : holds(spaces.bucket, stripe(key['id']))),
  class_state: (key, holds) => holdsClass(key, holds) || holds(spaces.bucket, '-4'),
  arrival: (_, holds) => holds(spaces.bucket, '-4'),
  ledger: (key, holds) => holds(spaces.bucket, stripe(key['bucket'])) || holds(spaces.bucket, '-2'),
  usage: (_, holds) => holds(spaces.bucket, '-18'),
  summed: (_, holds) => holds(spaces.bucket, '-18'),
  budget: (_, holds) => holds(spaces.bucket, '-18'),
  renewal: (key, holds) => holds(spaces.bucket, stripe(key['bucket'])),
  refusal: (key, holds) => holds(spaces.bucket, stripe(key['bucket'])),
  lease: (key, holds) => holds(spaces.bucket, stripe(key['bucket'])),
  bucket: (key, holds) => holds(spaces.bucket, stripe(key['id'])),
  limit_def: (_, holds) => holds(spaces.bucket, '-7') || holds(spaces.bucket, '-2'),
}
function holdsClass(key: Taken['key'], holds: (space: string, n: string) => boolean): boolean {
  return holds(spaces.class, key['class'] === '0' ? '-1' : stripe(key['class']))
}

/** The columns that identify a row within its table. */
const identity = (key: Taken['key']) =>
  key['id'] ??
  ['task', 'key', 'name', 'source', 'worker', 'bucket', 'lim', 'value', 'scope', 'one'].map((name) => key[name]).join()

/** The key of a lock within its kind, by which an ordered kind is taken. */
function placeOf({ of, key, by }: Taken): bigint {
  // Buckets that only a claim resolves (members of pools, values of labels) come after those of lanes, and are never the same.
  if (of === 'bucket key') return BigInt(key['id'] ?? 0) + (by.includes('resolve_buckets') ? 2n ** 65n : 0n)
  const place = key['n'] ?? key['seq'] ?? key['id'] ?? ''
  return /^-?\d+$/.test(place) ? BigInt(place) : 0n
}

/** Lists the faults in the order of locks, each sentence once; `seen` collects the locks that were met. */
export function disorder(
  all: readonly Taken[][],
  { waited, tried }: ReturnType<typeof lockOrder>,
  seen = new Set<string>(),
): string[] {
  const wrong = new Set<string>()
  for (const one of all) {
    const held: { lock: string; kind: Kind; place: bigint; by: string; isSorted: boolean }[] = []
    const has = new Set<string>()
    for (const taken of one) {
      const lock = lockOf(taken)
      const [table = '', what = ''] = taken.of.split(' ')
      const [by, place] = [taken.by.join(' < '), placeOf(taken)]
      const key = what === '' ? `${table} ${taken.key['n']}` : `${lock} ${identity(taken.key)}`
      const isHeld = has.has(key) || has.has(key.replace(/^(history|job) key /, 'job row '))
      has.add(key)
      seen.add(lock)
      const isSafe = safe[table]?.(taken.key, (space, n) => has.has(`${space} ${n}`))
      // A new id that no other session knows.
      const isOwn = lock === 'worker key' || (lock === 'job key' && taken.by[1] === 'send_failure_jobs')
      if (isHeld || isSafe === true || isOwn) continue
      const kind = waited.get(lock)
      if (kind === undefined) {
        if (!taken.isTried || !tried.has(lock)) wrong.add(`the table does not know ${lock}, of ${by}`)
        continue
      }
      const isSorted = taken.key['sorted'] === 'true'
      if (!taken.isTried)
        for (const before of held)
          if (
            before.kind.rank > kind.rank ||
            (before.lock === lock && kind.isOrdered && before.place > place && !(before.isSorted && isSorted))
          )
            wrong.add(`${kind.name} (${by}) after ${before.kind.name} (${before.by})`)
      held.push({ lock, kind, place, by, isSorted })
    }
  }
  return [...wrong]
}
