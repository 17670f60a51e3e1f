-- Ends subscriptions. $1: the service. $2: the handler; null: all of the service. Returns the handlers.
delete from sluice.subscription s where s.service = $1 and ($2::text is null or s.handler = $2) returning s.handler
