-- omission stands in a list for a document that would make the list larger than an
-- answer may be. It tells the size that the document has in the database, which is
-- known without reading it, and the path of the API that has it whole.
CREATE OR REPLACE FUNCTION tasker.omission(p_doc jsonb, p_path text) RETURNS jsonb
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT jsonb_build_object('omitted', true, 'stored_bytes', pg_column_size(p_doc), 'read_at', p_path)
$$;
COMMENT ON FUNCTION tasker.omission(jsonb, text) IS 'Stands in a list for a document that is too large for it.';
