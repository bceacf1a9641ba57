package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// Limits returns a page of the limits that the caller may see, and reports whether there are more.
func (db *DB) Limits(ctx context.Context, f tasker.LimitFilter, after tasker.LimitRef) (list []tasker.Limit, more bool, err error) {
	list, err = collect[tasker.Limit](ctx, db.pool, statement("selectLimits"), f.Namespace, access.ScopeFromContext(ctx).List(), after.Namespace, string(after.Kind), after.Name, f.Limit+1,
		string(f.Kind), f.Name)
	if err != nil {
		return nil, false, fmt.Errorf("list limits: %w", err)
	}
	list, more = trimPage(list, f.Limit)
	return list, more, nil
}

func findLimit(ctx context.Context, q querier, ref tasker.LimitRef) (tasker.Limit, error) {
	l, err := queryOne[tasker.Limit](ctx, q, statement("oneLimit"), ref.Namespace, string(ref.Kind), ref.Name, access.ScopeFromContext(ctx).List())
	if err != nil {
		return tasker.Limit{}, fmt.Errorf("read limit %s: %w", ref, err)
	}
	if l == nil {
		return tasker.Limit{}, tasker.Errorf(tasker.NotFound, "limit %s not found", ref)
	}
	return *l, nil
}

// Limit returns a limit with its busiest keys and the steps that hold their slots.
func (db *DB) Limit(ctx context.Context, ref tasker.LimitRef) (tasker.LimitDetail, error) {
	l, err := findLimit(ctx, db.pool, ref)
	if err != nil {
		return tasker.LimitDetail{}, err
	}
	type keyRow struct {
		LimitKeyID int64
		tasker.LimitKey
	}
	type holder struct {
		LimitKeyID int64
		tasker.LimitStep
	}
	d := tasker.LimitDetail{Limit: l, Keys: []tasker.LimitKey{}}
	rows, err := collect[keyRow](ctx, db.pool, statement("selectLimitKeys"), ref.Namespace, string(ref.Kind), ref.Name, tasker.MaxLimitKeys)
	if err != nil {
		return d, fmt.Errorf("read the keys of limit %s: %w", ref, err)
	}
	ids := make([]int64, len(rows))
	for i, r := range rows {
		ids[i] = r.LimitKeyID
	}
	holders, err := collect[holder](ctx, db.pool, statement("selectLimitHolders"), ids,
		access.ScopeFromContext(ctx).List())
	if err != nil {
		return d, fmt.Errorf("read the slots of limit %s: %w", ref, err)
	}
	of := map[int64][]tasker.LimitStep{}
	for _, h := range holders {
		of[h.LimitKeyID] = append(of[h.LimitKeyID], h.LimitStep)
	}
	for _, r := range rows {
		r.Holders = nonNil(of[r.LimitKeyID])
		d.Keys = append(d.Keys, r.LimitKey)
	}
	access.RedactLimitKeys(ctx, &d)
	return d, nil
}

// PutLimit creates or changes a limit. All claims after the commit observe it.
func (db *DB) PutLimit(ctx context.Context, ref tasker.LimitRef, v tasker.LimitValue, by Operator) (limit tasker.Limit, err error) {
	err = db.InTx(ctx, func(tx *Tx) error {
		count, err := queryValue[int](ctx, tx, statement("countLimits"), ref.Namespace, string(ref.Kind), ref.Name)
		if err != nil {
			return fmt.Errorf("count limits: %w", err)
		}
		if count >= tasker.MaxLimits {
			return tasker.Errorf(tasker.Conflict, "namespace %s already has %d limits, which is the maximum: "+
				"delete those you do not need", ref.Namespace, count)
		}
		id, err := queryValue[int64](ctx, tx, statement("putLimit"), string(ref.Kind), ref.Namespace, ref.Name, v.MaxInProgress, v.PerSecond, v.Burst, by.Actor)
		if err != nil {
			return fmt.Errorf("set limit %s: %w", ref, err)
		}
		// A named limit has the queues of the templates that assign it.
		if _, err := tx.Exec(ctx, statement("insertLimitQueues"), id, ref.Namespace, string(ref.Kind), ref.Name); err != nil {
			return fmt.Errorf("set limit %s: %w", ref, err)
		}
		if err := tx.auditLimit(ctx, "limit.set", ref, &v, by); err != nil {
			return err
		}
		limit, err = findLimit(ctx, tx, ref)
		return err
	})
	return limit, err
}

// DeleteLimit deletes a limit. Steps that wait for it return to the queue later. It returns
// NotFound, or a Conflict if templates assign the limit to steps.
func (db *DB) DeleteLimit(ctx context.Context, ref tasker.LimitRef, by Operator) error {
	return db.InTx(ctx, func(tx *Tx) error {
		if _, err := findLimit(ctx, tx, ref); err != nil {
			return err
		}
		assigned, err := queryValue[bool](ctx, tx, statement("limitHasQueues"), ref.Namespace, ref.Name)
		if err != nil {
			return fmt.Errorf("delete limit %s: %w", ref, err)
		}
		if ref.Kind == tasker.NamedLimit && assigned {
			return tasker.Errorf(tasker.Conflict,
				"limit %s is used by templates and cannot be deleted: set another value", ref)
		}
		if err := tx.deleteLimit(ctx, ref); err != nil {
			return fmt.Errorf("delete limit %s: %w", ref, err)
		}
		return tx.auditLimit(ctx, "limit.deleted", ref, nil, by)
	})
}

// deleteLimit deletes a limit and its keys. It waits until no claim locks the keys, so that all
// slots are deleted.
func (tx *Tx) deleteLimit(ctx context.Context, ref tasker.LimitRef) error {
	keys, err := collectColumn[int64](ctx, tx, statement("deleteLimitKeys"), ref.Namespace, string(ref.Kind), ref.Name)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, statement("deleteLimitSlots"), keys); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, statement("deleteLimit"), ref.Namespace, string(ref.Kind), ref.Name)
	return err
}

// maxUnparkKeys is the maximum number of keys with parked steps that are read in one pass.
const maxUnparkKeys = 200

// PruneLimitKeys checks up to limit keys after the given one and deletes those that have not been
// used for age. It returns the last key that it checked, or 0 at the end.
func (db *DB) PruneLimitKeys(ctx context.Context, age time.Duration, after int64, limit int) (int64, error) {
	last, err := queryValue[int64](ctx, db.pool, statement("pruneLimitKeys"), age, after, limit)
	return last, wrapError(err, "prune the keys of limits")
}

func (tx *Tx) auditLimit(ctx context.Context, action string, ref tasker.LimitRef, v *tasker.LimitValue, by Operator) error {
	doc, err := json.Marshal(struct {
		Reason string             `json:"reason,omitempty"`
		Value  *tasker.LimitValue `json:"value,omitempty"`
	}{by.Reason, v})
	if err != nil {
		return fmt.Errorf("audit %s: %w", action, err)
	}
	return tx.auditText(ctx, by.Actor, action, ref.String(), doc)
}
