package postgres

import (
	"context"
	"encoding/json"
	"fmt"
)

// A Redaction is what evidence must not show: see package redact.
type Redaction struct {
	KeyPattern   string
	Document     string // empty when nothing is hidden
	TextPatterns []string
	Paths        [][]string
}

// SetRedaction stores what new evidence must not show.
func (db *DB) SetRedaction(ctx context.Context, r Redaction) error {
	paths, err := json.Marshal(r.Paths)
	if err != nil {
		return fmt.Errorf("set redaction: %w", err)
	}
	_, err = db.pool.Exec(ctx, `
		UPDATE tasker.redaction
		SET key_pattern = $1, key_words = array_remove(ARRAY[$2], ''), text_patterns = $3, paths = $4::text::jsonb, updated_at = clock_timestamp()
		WHERE (key_pattern, key_words, text_patterns, paths) IS DISTINCT FROM ($1, array_remove(ARRAY[$2], ''), $3, $4::text::jsonb)`,
		r.KeyPattern, r.Document, r.TextPatterns, string(paths))
	return wrap(err, "set redaction")
}
