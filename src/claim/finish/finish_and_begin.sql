-- Ends attempts (`engine.finish_attempts`), and then records that other jobs begin (`engine.record_begun`), which waits
-- for no lock.
-- $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13: the parameters of engine.finish_attempts
-- $14, $15: the claims and seqs of the jobs that begin
-- held: those of their claims that the worker still has
select engine.finish_attempts($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13),
  array(select b.claim::text from engine.record_begun($14, $15) b where not b.locked) as held
