-- Reads what part of the declared cost a task's jobs really use, in thousandths: one quantile for each route of which
-- enough is known.
-- $1: task
-- $2: limits
-- $3: the quantile for each limit
-- $4: how many ratios of a route must be known
select l.lim, l.value, cardinality(l.ratios) as samples,
       (select percentile_disc(a.quantile) within group (order by r) from unnest(l.ratios) r) as share
from unnest($2::text::text[], $3::text::double precision[]) a (lim, quantile)
join sluice.learned l on l.task = $1::text and l.lim = a.lim
where cardinality(l.ratios) >= $4::text::integer
