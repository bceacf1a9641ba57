-- name: setRedaction
UPDATE tasker.redaction
SET key_pattern = $1, key_words = array_remove(ARRAY[$2], ''), text_patterns = $3, paths = $4::text::jsonb, updated_at = clock_timestamp()
WHERE (key_pattern, key_words, text_patterns, paths) IS DISTINCT FROM ($1, array_remove(ARRAY[$2], ''), $3, $4::text::jsonb);
