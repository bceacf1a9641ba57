-- Passwords inside of texts are hidden as well, and keys are compared word by word.
-- The server writes the row when it starts; until then, what an earlier version wrote
-- there is understood.

ALTER TABLE tasker.redaction ADD COLUMN text_patterns text[];
COMMENT ON COLUMN tasker.redaction.key_pattern IS 'Regular expression of the keys whose values are hidden, for the words of a key (function key_words).';
COMMENT ON COLUMN tasker.redaction.key_words IS 'One regular expression for the text of a document: one that does not match holds nothing that is hidden (function document_pattern).';
COMMENT ON COLUMN tasker.redaction.text_patterns IS 'Regular expressions of what is hidden inside of texts: three groups, what stays before, what is hidden, what stays after.';
