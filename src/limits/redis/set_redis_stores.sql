-- Sets how many databases share the limits in Redis, also to fewer than before; 0: this one does no more, and its row
-- goes.
-- $1: the number
with gone as (delete from sluice.shared where $1::integer = 0)
update sluice.shared set stores = $1 where $1::integer > 0
