package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/payload"
	"tasker.example/tasker/internal/postgres"
)

// digest is kept with a step to recognise a report that is sent again word for
// word. It is all that the common case costs; see repeats for the others.
func (v verdict) digest() []byte {
	sum := sha256.Sum256(append([]byte(v.Event), v.Body...))
	return sum[:]
}

// repeats tells whether v says the same as the report that its attempt was
// concluded with: of a success the result, compared by value; of a failure its
// type, its message and whether it may be retried. What a worker measures anew for
// each try does not count: metadata, the context of a failure, and the rest that
// it asks for.
func (e *Engine) repeats(ctx context.Context, v verdict, m postgres.Mark) (bool, error) {
	if m.ReportedFence == nil || *m.ReportedFence != v.Fence {
		return false, nil
	}
	if bytes.Equal(m.ReportDigest, v.Digest) {
		return true, nil
	}
	var stored json.RawMessage
	err := persist(ctx, func() (err error) {
		stored, err = e.db.ReportedBody(ctx, v.TaskUUID, v.StepUUID, v.Fence, v.To)
		return err
	})
	if err != nil || stored == nil {
		return false, err
	}
	was, err := said(v.To, stored)
	if err != nil {
		return false, err
	}
	is, err := said(v.To, v.Body)
	return bytes.Equal(was, is), err
}

// said returns what tells the body of one report from another.
func said(to tasker.StepState, body json.RawMessage) ([]byte, error) {
	if to == tasker.StepComplete {
		var r tasker.StepResult
		if err := json.Unmarshal(body, &r); err != nil {
			return nil, fmt.Errorf("read a stored result: %w", err)
		}
		return payload.Canonical(r.Result)
	}
	var f tasker.StepFailure
	if err := json.Unmarshal(body, &f); err != nil {
		return nil, fmt.Errorf("read a stored failure: %w", err)
	}
	return json.Marshal([]any{f.Type, f.Message, f.Retryable})
}
