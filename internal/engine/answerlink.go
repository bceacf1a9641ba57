package engine

import (
	"cmp"
	"context"
	"encoding/json"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/postgres"
)

// CreateAnswerLink creates a link with which an external step can be answered once, without signing
// in. It returns a Conflict if the step is not waiting for an assignee's answer or has too many
// links.
func (e *Engine) CreateAnswerLink(ctx context.Context, step tasker.StepRef, r tasker.AnswerLinkRequest) (made tasker.NewAnswerLink, err error) {
	life := cmp.Or(r.Life, tasker.DefaultAnswerLinkLife)
	if life < tasker.MinAnswerLinkLife || life > tasker.MaxAnswerLinkLife {
		return made, tasker.Errorf(tasker.Invalid,
			"invalid lifetime %s: must be from %s to %s", life, tasker.MinAnswerLinkLife, tasker.MaxAnswerLinkLife).
			WithDetails([]tasker.Fault{{Path: "expires_in_seconds", Message: "must be from 60 to 2592000"}})
	}
	if err := checkTextError("by", r.Actor, 255, true); err != nil {
		return made, err
	}
	token := access.NewLinkToken()
	err = e.db.InTx(ctx, func(tx *postgres.Tx) error {
		if err := checkWaitsForAnswer(ctx, tx, step); err != nil {
			return err
		}
		a, err := tx.HumanStep(ctx, step)
		if err != nil {
			return err
		}
		if a == nil || a.Assignee == "" {
			return tasker.Errorf(tasker.Conflict, "the step has no assignee: assign it first, because an answer through the link is recorded as the assignee's")
		}
		mark, err := tx.LockStepLease(ctx, step.TaskUUID, step.StepUUID)
		if err != nil {
			return err
		}
		l, err := tx.AddAnswerLink(ctx, postgres.NewAnswerLink{
			UUID: tasker.NewID(), StepRef: step, Fence: mark.Fence, Assignee: string(a.Assignee), Digest: token.Digest, Life: life, Actor: r.Actor,
		})
		if err == nil && l != nil {
			made = tasker.NewAnswerLink{AnswerLink: *l, Token: token.Text}
		}
		return err
	})
	return made, err
}

// AnswerLinks returns the answer links of a step, newest first.
func (e *Engine) AnswerLinks(ctx context.Context, step tasker.StepRef) ([]tasker.AnswerLink, error) {
	if _, err := e.db.Step(ctx, step.TaskUUID, step.StepUUID); err != nil {
		return nil, err
	}
	return e.db.AnswerLinks(ctx, step)
}

// RevokeAnswerLink revokes an answer link. Repeating it has no effect. It returns a Conflict if the
// link has been used.
func (e *Engine) RevokeAnswerLink(ctx context.Context, step tasker.StepRef, link tasker.ID, actor string) (l tasker.AnswerLink, err error) {
	if err := checkTextError("by", actor, 255, true); err != nil {
		return l, err
	}
	err = e.db.InTx(ctx, func(tx *postgres.Tx) error {
		if _, err := lockStep(ctx, tx, step); err != nil {
			return err
		}
		now, err := tx.RevokeAnswerLink(ctx, step, link, actor)
		if err == nil {
			l = *now
		}
		return err
	})
	return l, err
}

// errNoLink is the same for all unusable links, so that it does not reveal whether a token ever
// existed.
var errNoLink = tasker.Errorf(tasker.NotFound, "invalid link")

// AnswerQuestion returns the question to which an answer link belongs. If the link is no longer
// open, only the state is set. It returns NotFound for an unknown, revoked or void link.
func (e *Engine) AnswerQuestion(ctx context.Context, token string) (q tasker.AnswerQuestion, err error) {
	t, ok := access.ParseLinkToken(token)
	if !ok {
		return q, errNoLink
	}
	l, err := e.db.AnswerLink(ctx, t.Digest)
	if err != nil {
		return q, err
	}
	if err := checkLink(l); err != nil || l.State != tasker.LinkOpen {
		if l != nil {
			q.State = l.State
		}
		return q, err
	}
	task, err := e.db.Task(ctx, l.TaskUUID)
	if err != nil {
		return q, err
	}
	s, err := e.db.Step(ctx, l.TaskUUID, l.StepUUID)
	if err != nil {
		return q, err
	}
	q = tasker.AnswerQuestion{State: l.State, Step: s.Name, Assignee: l.Assignee, ExpiresAt: l.ExpiresAt}
	q.Form, err = e.findForm(ctx, task.TemplateUUID, s.Name)
	return q, err
}

// checkLink returns errNoLink for a missing, revoked or void link.
func checkLink(l *tasker.AnswerLink) error {
	if l == nil || l.State == tasker.LinkRevoked || l.State == tasker.LinkVoid {
		return errNoLink
	}
	return nil
}

// AnswerByLink answers a step and uses up the link, unless the form rejects the answer. If the link
// was used before, the result used is false.
func (e *Engine) AnswerByLink(ctx context.Context, token string, result json.RawMessage) (state tasker.AnswerLinkState, used bool, err error) {
	t, ok := access.ParseLinkToken(token)
	if !ok {
		return "", false, errNoLink
	}
	var concluded postgres.Concluded
	err = e.db.InTx(ctx, func(tx *postgres.Tx) error {
		concluded, used = postgres.Concluded{}, false
		l, err := tx.AnswerLink(ctx, t.Digest)
		if err != nil || l == nil {
			return cmp.Or(err, error(errNoLink))
		}
		if _, err := lockStep(ctx, tx, l.StepRef); err != nil {
			return err
		}
		if used, err = tx.UseAnswerLink(ctx, *l); err != nil {
			return err
		}
		if !used { // the state from before the lock may be outdated
			if l, err = tx.AnswerLink(ctx, t.Digest); err == nil {
				err = checkLink(l)
			}
			if err == nil {
				state = l.State
			}
			return err
		}
		state = tasker.LinkUsed
		v, err := evaluateExternalOutcome(l.StepRef, tasker.Outcome{Success: true, Result: result}, postgres.LinkActor(l.Assignee))
		if err != nil {
			return err
		}
		concluded, err = e.completeExternalIn(ctx, tx, v)
		return err
	})
	if code := tasker.CodeOf(err); code == tasker.Conflict || code == tasker.NotFound {
		err = errNoLink // reveals nothing about the task
	}
	if err != nil {
		return "", false, err
	}
	e.notify(concluded.Namespaces)
	e.scheduleDecision(concluded)
	return state, used, nil
}
