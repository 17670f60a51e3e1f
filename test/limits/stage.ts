/** Plays histories on a store: all acts in one round trip, and the state of the buckets after each. */
import { fn } from '../servers/fn.ts'
import { expect } from 'vitest'
import type { Db } from '../../src/db/db.ts'
import { type History, keepUs, needs } from './acts.ts'
import { Twin } from './history.ts'

/** The store's clock is a row; `test_play` carries out commands and reads the buckets after each. */
const functions = `
create table sluice.test_clock (us bigint);
insert into sluice.test_clock values (0);
create or replace function sluice.now() returns timestamptz language sql volatile as
  'select to_timestamp(0) + us * interval ''1 microsecond'' from sluice.test_clock';
-- This clock goes back on purpose.
update sluice.epoch set watched = false;

create function sluice.test_find(p_buckets bigint[], p_names text[]) returns void language sql as $$
  insert into sluice.bucket (id, name, key) select b, n, (o - 1)::text from unnest(p_buckets, p_names) with ordinality u (b, n, o)
  on conflict do nothing $$;

create function sluice.test_rows(p_buckets bigint[]) returns table (ord integer, line text) language plpgsql as $$
begin
  return query select r.ord, format('at %s debt %s parts %s quota %s hold %s avail %s units %s places %s next %s', r.now_at, r.debt,
    r.parts, r.quota, case when r.hold > r.now_at then r.hold else 0 end, r.avail, r.units, r.places, r.next)
  from unnest(${fn}.bucket_room(p_buckets, sluice.now_us(), false, array(
    select (array[${needs.join(',')}])[1 + b.key::integer]::bigint from unnest(p_buckets) with ordinality u (id, o)
    left join sluice.bucket b on b.id = u.id order by o))) r;
end $$;

-- In plpgsql, because SQL would be planned at each call.
create function sluice.test_numbers(p jsonb) returns bigint[] language plpgsql immutable as $$
begin
  return translate(p::text, '[]" ', '{}')::bigint[];
end $$;

create function sluice.test_play(p_buckets bigint[], p_names text[], p_commands jsonb) returns table (answer text, state text)
language plpgsql as $$
declare
  c jsonb;
  v_buckets bigint[];
  v_ahead record;
begin
  for c in select e from jsonb_array_elements(p_commands) with ordinality u (e, o) order by o loop
    answer := null;
    v_buckets := sluice.test_numbers(c -> 'buckets');
    case c ->> 'kind'
      when 'clock' then
        update sluice.test_clock set us = (c ->> 'us')::bigint;
      when 'take' then
        perform ${fn}.renew_bucket_states(v_buckets);
        select t.granted || ' ' || coalesce(t.soonest_us, 0) into answer from ${fn}.decide_grant(
          (c ->> 'grant')::uuid, v_buckets, sluice.test_numbers(c -> 'units'), null, 0, ${fn}.limiter_now_us()) t;
      when 'charge' then
        perform ${fn}.append_ledger(
          array(select r::${fn}.room from unnest(${fn}.bucket_room(v_buckets, (c ->> 'now')::bigint)) r
                where (sluice.test_numbers(c -> 'places'))[r.ord] > 0),
          (c ->> 'claim')::uuid, sluice.test_numbers(c -> 'units'), sluice.test_numbers(c -> 'places'));
      when 'ahead' then
        select g.* into v_ahead from ${fn}.grant_ahead((${fn}.bucket_room(v_buckets, (c ->> 'now')::bigint))[1],
          (c ->> 'units')::integer, (c ->> 'now')::bigint) g;
        answer := coalesce(array_to_string(v_ahead.instants, ','), 'never');
        if cardinality(v_ahead.instants) > 0 then
          perform ${fn}.append_ledger(array[v_ahead.room], (c ->> 'claim')::uuid,
            array[cardinality(v_ahead.instants)::bigint], array[cardinality(v_ahead.instants)::bigint],
            p_instants => v_ahead.instants);
        end if;
      when 'refund' then
        perform ${fn}.refund_units(v_buckets[1], (c ->> 'claim')::uuid, (c ->> 'units')::bigint, (c ->> 'full')::boolean);
      when 'overrun' then
        perform ${fn}.charge_overrun(v_buckets[1], (c ->> 'claim')::uuid, (c ->> 'units')::bigint, (c ->> 'now')::bigint);
      when 'release' then
        perform ${fn}.release_places(v_buckets, sluice.test_numbers(c -> 'units')::integer[]);
      when 'hold' then
        perform ${fn}.hold_buckets(v_buckets, (c ->> 'us')::bigint, null, null, (c ->> 'trialUs')::bigint);
      when 'accept' then
        perform ${fn}.accept_buckets(v_buckets, 0, null);
      when 'retire' then
        update sluice.test_clock set us = (c ->> 'us')::bigint;
        perform ${fn}.delete_old_ledger((c ->> 'keep')::bigint, -1);
        answer := (select gone from ${fn}.retire_buckets((c ->> 'keep')::bigint, null, '-9223372036854775808'));
        -- As for the first job of a lane.
        if not c ? 'last' then perform sluice.test_find(p_buckets, p_names); end if;
      when 'define' then
        perform ${fn}.define_limit(c ->> 'name', 'code', '', c -> 'spec', c -> 'columns', 'test', null);
    end case;
    state := md5((select string_agg(r.line, E'\\n' order by r.ord) from sluice.test_rows(coalesce(v_buckets, p_buckets)) r));
    return next;
  end loop;
end $$;`

/** Puts the store's clock into a table, and the functions that play. */
export async function setStage(db: Db): Promise<void> {
  await db.script(functions)
}

interface Seen {
  answer: string | null
  state: string
}

async function play(db: Db, twin: Twin, commands: readonly object[]): Promise<Seen[]> {
  const { ids, names } = twin.buckets
  await db.query('select sluice.test_find($1, $2)', [ids, names])
  return db.query<Seen>('select answer, state from sluice.test_play($1, $2, $3)', [
    ids,
    names,
    JSON.stringify(commands),
  ])
}

/** Longer than any debt that a history can make: thousands of units at one a day. */
const agesUs = 3_000 * 366 * 86_400_000_000

/**
 * Plays a history, and compares the store with decide.ts, act by act. At the end, when everything has been
 * released and has drained, all buckets must be ready for retirement. Resolves to the number of compared acts.
 * @param look reads the store as the history leaves it, before that
 */
export async function compare(db: Db, history: History, look?: () => Promise<void>): Promise<number> {
  const twin = new Twin(history)
  const { scenes } = twin
  const { ids } = twin.buckets
  const seen = await play(
    db,
    twin,
    scenes.map(({ command }) => command),
  )
  const first = scenes.findIndex(({ answer, state }, i) => {
    return answer !== seen[i]?.answer || (state !== null && state !== seen[i]?.state)
  })
  if (first >= 0) await show(db, history, first)
  await look?.()
  const [, last] = await play(db, twin, [
    { kind: 'release', buckets: ids, units: ids.map(() => 1_000_000) },
    { kind: 'retire', us: history.startUs + agesUs, keep: keepUs, last: true },
  ])
  const left = await db.query<{ line: string }>(
    'select line from sluice.test_rows(array(select distinct bucket from sluice.ledger where bucket = any ($1)))',
    [ids],
  )
  expect({ gone: last?.answer, left }).toEqual({ gone: String(ids.length), left: [] })
  return scenes.length
}

/** Plays the history again up to the act where the store differs, and fails with the difference. */
async function show(db: Db, history: History, at: number): Promise<void> {
  // The scenes before the first act: the clock, and a definition of each limit.
  const ahead = 1 + history.limits.length
  const twin = new Twin({ ...history, acts: history.acts.slice(0, Math.max(0, at + 1 - ahead)) })
  const { ids } = twin.buckets
  const seen = await play(
    db,
    twin,
    twin.scenes.map(({ command }) => command),
  )
  const lines = await db.query<{ line: string }>('select line from sluice.test_rows($1) order by ord', [ids])
  const where = { act: at - ahead, what: twin.scenes.at(-1)?.command }
  expect({ ...where, answer: seen.at(-1)?.answer, buckets: lines.map(({ line }) => line) }).toEqual({
    ...where,
    answer: twin.scenes.at(-1)?.answer,
    buckets: twin.rows(),
  })
  throw new Error(`act ${at - ahead} differed, and did not when it was played again`)
}
