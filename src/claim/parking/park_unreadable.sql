-- Parks the bucket $1, whose state in Redis cannot be read. $2: the error.
select engine.park_bucket(row($1, null, $2)::engine.fault)
