-- Ends attempts (`engine.finish_attempts`), and then records that other jobs begin (`engine.record_begun`), which waits
-- for no lock.
-- $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13: the parameters of engine.finish_attempts
-- $14, $15: the claims and seqs of the jobs that begin
-- held: those of their claims that the store still has
-- locked: those of held that another transaction has locked, so that nothing was recorded
with begun as materialized (select b.claim::text, b.locked from engine.record_begun($14, $15) b)
select engine.finish_attempts($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13),
  array(select claim from begun) as held, array(select claim from begun where locked) as locked
