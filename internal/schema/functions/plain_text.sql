-- plain_text returns a text in lower case, without dashes, underscores and blanks.
CREATE OR REPLACE FUNCTION tasker.plain_text(p_text text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT lower(replace(replace(replace(p_text, '-', ''), '_', ''), ' ', ''))
$$;
COMMENT ON FUNCTION tasker.plain_text(text) IS 'A text in lower case, without dashes, underscores and blanks.';
