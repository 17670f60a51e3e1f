-- Sets how many databases share the limits in Redis, also to fewer than before. If this database had no epoch yet, it
-- gets one that Redis does not have. So the next epoch is not a first one, and closes the limits that other programs
-- take from, because other databases may have granted units.
-- $1: the number; 0: this database uses Redis no more, and its row is deleted
with gone as (delete from sluice.shared where $1::integer = 0)
insert into sluice.shared (owner, epoch, at, stores)
select replace(gen_random_uuid()::text, '-', ''), replace(gen_random_uuid()::text, '-', ''), '-infinity', $1::integer
where $1::integer > 0
on conflict (one) do update
set stores = excluded.stores, epoch = coalesce(nullif(shared.epoch, ''), excluded.epoch)
