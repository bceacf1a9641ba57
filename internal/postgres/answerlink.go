package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"tasker.example/tasker"
)

// AnswerLinks returns the answer links of a step, newest first.
func (db *DB) AnswerLinks(ctx context.Context, step tasker.StepRef) ([]tasker.AnswerLink, error) {
	list, err := collect[tasker.AnswerLink](ctx, db.pool, statement("selectAnswerLinks"), step.TaskUUID, step.StepUUID, tasker.MaxOpenAnswerLinks+tasker.MaxEndedAnswerLinks)
	return list, wrapError(err, "read the answer links of step %s", step.StepUUID)
}

func findAnswerLink(ctx context.Context, q querier, digest [32]byte) (*tasker.AnswerLink, error) {
	l, err := queryOne[tasker.AnswerLink](ctx, q, statement("answerLinkByDigest"), digest[:])
	return l, wrapError(err, "read an answer link")
}

// AnswerLink returns the answer link whose token has the given digest, or nil.
func (db *DB) AnswerLink(ctx context.Context, digest [32]byte) (*tasker.AnswerLink, error) {
	return findAnswerLink(ctx, db.pool, digest)
}

// AnswerLink is [DB.AnswerLink] in a transaction.
func (tx *Tx) AnswerLink(ctx context.Context, digest [32]byte) (*tasker.AnswerLink, error) {
	return findAnswerLink(ctx, tx, digest)
}

// NewAnswerLink describes an answer link to store.
type NewAnswerLink struct {
	UUID tasker.ID
	tasker.StepRef
	Fence    int64
	Assignee string
	Digest   [32]byte
	Life     time.Duration
	Actor    string
}

// AddAnswerLink stores an answer link. It returns a Conflict if the step has too many open links.
// The caller must hold the task lock.
func (tx *Tx) AddAnswerLink(ctx context.Context, l NewAnswerLink) (*tasker.AnswerLink, error) {
	open, err := queryValue[int](ctx, tx, statement("countOpenLinks"), l.TaskUUID, l.StepUUID)
	if err != nil {
		return nil, fmt.Errorf("count the answer links of step %s: %w", l.StepUUID, err)
	}
	if open >= tasker.MaxOpenAnswerLinks {
		return nil, tasker.Errorf(tasker.Conflict,
			"the step already has %d usable answer links, which is the limit: revoke those you do not need", open)
	}
	if _, err := tx.Exec(ctx, statement("dropEndedLinks"), l.TaskUUID, l.StepUUID,
		tasker.MaxEndedAnswerLinks); err != nil {
		return nil, fmt.Errorf("remove old answer links of step %s: %w", l.StepUUID, err)
	}
	if _, err := tx.Exec(ctx, statement("addAnswerLink"),
		l.UUID, l.TaskUUID, l.StepUUID, l.Fence, l.Assignee, l.Digest[:], l.Actor, l.Life); err != nil {
		return nil, fmt.Errorf("store an answer link of step %s: %w", l.StepUUID, err)
	}
	stored, err := tx.AnswerLink(ctx, l.Digest)
	if err != nil || stored == nil {
		return nil, err
	}
	return stored, tx.auditLink(ctx, l.Actor, "step.link_created", *stored)
}

// UseAnswerLink marks a link as used. It returns false if the link was not open. The caller must
// hold the task lock.
func (tx *Tx) UseAnswerLink(ctx context.Context, l tasker.AnswerLink) (bool, error) {
	tag, err := tx.Exec(ctx, statement("useAnswerLink"), l.UUID)
	if err != nil || tag.RowsAffected() == 0 {
		return false, wrapError(err, "use an answer link of step %s", l.StepUUID)
	}
	return true, tx.auditLink(ctx, LinkActor(l.Assignee), "step.link_used", l)
}

// LinkActor returns the actor that is recorded for an answer given through a link.
func LinkActor(assignee string) string { return "link:" + assignee }

// RevokeAnswerLink revokes an answer link and returns it. It returns a Conflict if the link has
// been used.
func (tx *Tx) RevokeAnswerLink(ctx context.Context, step tasker.StepRef, link tasker.ID, actor string) (*tasker.AnswerLink, error) {
	tag, err := tx.Exec(ctx, statement("revokeAnswerLink"), step.TaskUUID, step.StepUUID, link, actor)
	if err != nil {
		return nil, fmt.Errorf("revoke answer link %s: %w", link, err)
	}
	l, err := queryOne[tasker.AnswerLink](ctx, tx, statement("endedAnswerLink"),
		step.TaskUUID, step.StepUUID, link)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read answer link %s: %w", link, err)
	case l == nil:
		return nil, tasker.Errorf(tasker.NotFound, "answer link %s not found for this step", link)
	case l.UsedAt != nil:
		return nil, tasker.Errorf(tasker.Conflict, "answer link %s was used at %s", link, l.UsedAt.UTC().Format(time.RFC3339))
	case tag.RowsAffected() == 0:
		return l, nil
	}
	return l, tx.auditLink(ctx, actor, "step.link_revoked", *l)
}

func (tx *Tx) auditLink(ctx context.Context, actor, action string, l tasker.AnswerLink) error {
	data, err := json.Marshal(map[string]any{"task_uuid": l.TaskUUID, "link_uuid": l.UUID, "assignee": l.Assignee, "expires_at": l.ExpiresAt.UTC()})
	if err != nil {
		return fmt.Errorf("audit an answer link: %w", err)
	}
	return tx.auditData(ctx, actor, action, l.StepUUID, data)
}
