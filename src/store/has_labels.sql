-- Returns true when a worker with these labels (null: any worker) has each label that limits name (`ip@host`; null:
-- they name none).
create or replace function engine.has_labels(p_labels jsonb, p_label_limits text[])
returns boolean language plpgsql immutable as $$
begin
  if p_label_limits is null or p_labels is null then return true; end if;
  return p_labels ?& array(select split_part(a, '@', 2) from unnest(p_label_limits) a);
end $$;
