-- is_hidden_key reports whether the values of a key are hidden. The pattern of a server begins
-- with (?:) and matches the words of a key. That of the schema, which holds until a server has
-- stored its own, matches keys in lower case without separators.
CREATE OR REPLACE FUNCTION tasker.is_hidden_key(p_key text, p_pattern text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE WHEN p_pattern LIKE '(?:)%' THEN tasker.key_words(p_key) ~ p_pattern ELSE tasker.plain_text(p_key) ~ p_pattern END
$$;
COMMENT ON FUNCTION tasker.is_hidden_key(text, text) IS 'Whether the values of a key are hidden.';
