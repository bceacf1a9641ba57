package postgres

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
)

// maxStepSize is the maximum size of an assignment in bytes: context, item and inline results.
const maxStepSize = 2*tasker.MaxDocumentBytes + tasker.MaxInlineInputBytes

type claimRow struct {
	Kind  string
	Bytes int64
	Claimed
	Dependencies *dependencies // replaces DependencyResults
}

// dependencies contains the results of parents, some of them as references.
type dependencies struct {
	Results map[string]json.RawMessage  `json:"results"`
	Refs    map[string]tasker.ResultRef `json:"refs"`
}

// Claimed is an assignment without the settings that come from the template.
type Claimed struct {
	tasker.Assignment
	TemplateUUID tasker.ID
	Priority     int
}

// ClaimResult is the result of a claim.
type ClaimResult struct {
	Steps      []Claimed
	Unmeasured []tasker.StepRef // inputs must be measured before these steps can be claimed
	TooLarge   []tasker.StepRef // steps that can never be claimed

	bytes int  // total size of the inputs
	old   bool // old steps preceded more urgent ones
	busy  bool // other claims had locked or moved some of the wanted steps
	held  bool // steps are held, so each must be checked

	limited bool          // steps may have limits, so each must be checked
	again   time.Duration // time until a step that waits for a limit can be claimed; 0 if none waits
}

// IsBlocked reports whether some steps must be measured or can never be claimed.
func (h ClaimResult) IsBlocked() bool { return len(h.Unmeasured)+len(h.TooLarge) > 0 }

// add adds the result of a repeated claim.
func (h *ClaimResult) add(next ClaimResult) {
	h.Steps = append(h.Steps, next.Steps...)
	h.Unmeasured, h.TooLarge = next.Unmeasured, next.TooLarge // the repeated claim read more steps
	h.bytes += next.bytes
	h.old, h.busy, h.limited = next.old, next.busy, next.limited
	if h.again == 0 || next.again > 0 && next.again < h.again {
		h.again = next.again
	}
}

// RetryAfter returns the time until a step that waits for a limit can be claimed, or 0.
func (h ClaimResult) RetryAfter() time.Duration { return h.again }

func (db *DB) runClaim(ctx context.Context, sql string, args []any) (ClaimResult, error) {
	var rows []claimRow
	err := retry(ctx, func() (err error) {
		rows, err = collect[claimRow](ctx, db.pool, sql, args...)
		return err
	})
	if err != nil {
		return ClaimResult{}, fmt.Errorf("claim steps: %w", err)
	}
	return newClaimResult(rows), nil
}

// readClaim reads the result of a claim from a batch.
func readClaim(results pgx.BatchResults) (ClaimResult, error) {
	rows, err := readBatchRows[claimRow](results)
	if err != nil {
		return ClaimResult{}, fmt.Errorf("claim steps: %w", err)
	}
	return newClaimResult(rows), nil
}

func newClaimResult(list []claimRow) ClaimResult {
	h := ClaimResult{Steps: make([]Claimed, 0, len(list))}
	for _, r := range list {
		ref := tasker.StepRef{TaskUUID: r.TaskUUID, StepUUID: r.StepUUID}
		switch r.Kind {
		case "step":
			h.Steps = append(h.Steps, r.toClaimed())
			h.bytes += int(r.Bytes)
		case "unmeasured":
			h.Unmeasured = append(h.Unmeasured, ref)
		case "too_large":
			h.TooLarge = append(h.TooLarge, ref)
		case "held":
			h.held = true
		case "old":
			h.old = true
		case "limited":
			h.limited = true
		case "busy":
			h.busy = true
		}
	}
	slices.SortFunc(h.Steps, func(a, b Claimed) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), bytes.Compare(a.StepUUID[:], b.StepUUID[:]))
	})
	return h
}

func (r claimRow) toClaimed() Claimed {
	if d := r.Dependencies; d != nil {
		r.DependencyResults, r.DependencyRefs = d.Results, d.Refs
	}
	return r.Claimed
}
