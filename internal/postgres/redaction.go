package postgres

import (
	"context"
	"encoding/json"
	"fmt"
)

// Redaction describes what evidence must not contain. See package redact.
type Redaction struct {
	KeyPattern   string
	Document     string // key words; empty if nothing is redacted
	TextPatterns []string
	Paths        [][]string
}

// SetRedaction stores the redaction rules for new evidence.
func (db *DB) SetRedaction(ctx context.Context, r Redaction) error {
	paths, err := json.Marshal(r.Paths)
	if err != nil {
		return fmt.Errorf("set redaction: %w", err)
	}
	return exec(ctx, db.pool, "set redaction", statement("setRedaction"),
		r.KeyPattern, r.Document, r.TextPatterns, string(paths))

}
