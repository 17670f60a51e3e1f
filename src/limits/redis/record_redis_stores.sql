-- Records that $1 databases share the limits in Redis; a smaller number changes nothing. If there was no epoch yet, the
-- row has the epoch ''.
insert into sluice.shared (owner, epoch, at, stores)
values (replace(gen_random_uuid()::text, '-', ''), '', '-infinity', $1)
on conflict (one) do update set stores = excluded.stores where shared.stores < excluded.stores
