-- Records in which stints workers may begin what a dispatcher claims from now on.
-- $1 the dispatcher's worker, $2 the stints; those that it has already stay
update sluice.worker w set stints = w.stints || array(select unnest($2::text[]) except select unnest(w.stints))
where w.id = $1
