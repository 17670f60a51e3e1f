-- Sets how many databases share the limits in Redis, also to fewer than before; 0: this one does no more, and its row
-- goes. If this database had no epoch yet, an epoch that Redis does not have is set: other databases may have granted,
-- so the epoch that follows is not the first, and closes the limits that other programs take from.
-- $1: the number
with gone as (delete from sluice.shared where $1::integer = 0)
insert into sluice.shared (owner, epoch, at, stores)
select replace(gen_random_uuid()::text, '-', ''), replace(gen_random_uuid()::text, '-', ''), '-infinity', $1::integer
where $1::integer > 0
on conflict (one) do update
set stores = excluded.stores, epoch = coalesce(nullif(shared.epoch, ''), excluded.epoch)
