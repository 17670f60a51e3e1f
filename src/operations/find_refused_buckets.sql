-- Returns the buckets that a vendor's bad answers hold.
-- $1 the limit, $2 the key; '': all keys
select b.id::text, b.name || coalesce(':' || nullif(b.key, ''), '') as bucket
from sluice.refusal r join sluice.bucket b on b.id = r.bucket
where (b.name = $1 or strpos(b.name, $1 || '/') = 1) and $2 in ('', b.key)
