-- error_pattern is a message without what differs from task to task: ids and numbers
-- become #. Only the beginning counts: what follows it is detail.
CREATE OR REPLACE FUNCTION tasker.error_pattern(p_message text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT left(regexp_replace(left(p_message, 500),
        '[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}|\m0x[0-9a-fA-F]+\M|\m(?=[0-9a-fA-F]*[0-9])[0-9a-fA-F]{7,}\M|[0-9]+([.,:][0-9]+)*', '#', 'g'), 200)
$$;
COMMENT ON FUNCTION tasker.error_pattern(text) IS 'A message without ids and numbers, to tell which failures are the same.';
