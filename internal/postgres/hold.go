package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/version"
)

// holdCheckWindow is the time for which the claims of a server check each step after one of them
// found a hold.
const holdCheckWindow = time.Second

// A claimMode determines how a claim is executed.
type claimMode struct {
	asks   bool        // steps are held
	gates  []tasker.ID // operations whose required worker version the worker has
	turn   *fairOrder  // nil for a claim by urgency in one namespace
	ranges *queueRanges
	direct bool // the worker may claim the steps that its report makes ready
}

// claimCheckingHolds executes a claim. If it finds nothing while steps are held, it reads the
// operations that require a worker version and repeats the claim.
func (db *DB) claimCheckingHolds(ctx context.Context, of string, claim func(claimMode) (ClaimResult, error)) (ClaimResult, error) {
	l, err := db.claimModeFor(ctx, of)
	if err != nil {
		return ClaimResult{}, err
	}
	result, err := claim(l)
	if err != nil || !result.held {
		return result, err
	}
	db.recordHold()
	if l.asks || len(result.Steps) > 0 {
		return result, nil
	}
	if l, err = db.claimModeFor(ctx, of); err != nil {
		return ClaimResult{}, err
	}
	return claim(l)
}

// claimModeFor returns the current claim mode for workers of a version.
func (db *DB) claimModeFor(ctx context.Context, of string) (claimMode, error) {
	if !db.hasActiveHolds() {
		return claimMode{}, nil
	}
	type gate struct {
		OperationUUID tasker.ID
		WorkerAtLeast string
	}
	list, err := collect[gate](ctx, db.pool, statement("versionedOperations"))
	if err != nil {
		return claimMode{}, fmt.Errorf("read the operations that require a worker version: %w", err)
	}
	l := claimMode{asks: true, gates: []tasker.ID{}}
	for _, g := range list {
		if version.AtLeast(of, g.WorkerAtLeast) {
			l.gates = append(l.gates, g.OperationUUID)
		}
	}
	return l, nil
}

func (db *DB) hasActiveHolds() bool { return time.Now().UnixNano() < db.askUntil.Load() }

func (db *DB) recordHold() { db.askUntil.Store(time.Now().Add(holdCheckWindow).UnixNano()) }

// Holds returns a page of the holds that the caller may see, newest first, and reports whether
// there are more.
func (db *DB) Holds(ctx context.Context, f tasker.HoldFilter) (list []tasker.Hold, more bool, err error) {
	scope := access.ScopeFromContext(ctx).List()
	if f.Open {
		list, err = collect[tasker.Hold](ctx, db.pool, statement("selectOpenHolds"), f.Namespace, scope, f.Before, f.Limit+1)
	} else {
		list, err = collect[tasker.Hold](ctx, db.pool, statement("selectHolds"), f.Namespace, scope, f.Before, f.Limit+1)
	}
	if err != nil {
		return nil, false, fmt.Errorf("list the holds: %w", err)
	}
	list, more = trimPage(list, f.Limit)
	for i := range list {
		completeHold(ctx, &list[i])
	}
	return list, more, nil
}

// OpenHolds returns the open holds without counting held steps. There are at most
// [tasker.MaxOpenHolds].
func (db *DB) OpenHolds(ctx context.Context) ([]tasker.Hold, error) {
	list, err := collect[tasker.Hold](ctx, db.pool, statement("openHolds"))
	return list, wrapError(err, "list the open holds")
}

// CountHolds counts the open holds by kind and state.
func (db *DB) CountHolds(ctx context.Context) ([]tasker.HoldGroup, error) {
	list, err := collect[tasker.HoldGroup](ctx, db.pool, statement("countHolds"))
	return list, wrapError(err, "count the holds")
}

func findHold(ctx context.Context, q querier, id tasker.ID) (tasker.Hold, error) {
	h, err := queryOne[tasker.Hold](ctx, q, statement("oneHold"), id, access.ScopeFromContext(ctx).List())
	if err != nil {
		return tasker.Hold{}, fmt.Errorf("read hold %s: %w", id, err)
	}
	if h == nil {
		return tasker.Hold{}, tasker.Errorf(tasker.NotFound, "hold %s not found", id)
	}
	completeHold(ctx, h)
	return *h, nil
}

// completeHold sets the derived field of a hold and redacts it.
func completeHold(ctx context.Context, h *tasker.Hold) {
	h.HeldIsAtLeast = h.Held >= tasker.MaxHeldCount
	access.RedactHold(ctx, h)
}

// Hold returns a hold with the newest entries of its history and its newest releases.
func (db *DB) Hold(ctx context.Context, id tasker.ID) (tasker.HoldDetail, error) {
	h, err := findHold(ctx, db.pool, id)
	if err != nil {
		return tasker.HoldDetail{}, err
	}
	d := tasker.HoldDetail{Hold: h}
	d.History, err = collect[tasker.HoldChange](ctx, db.pool, statement("holdHistory"), id, tasker.MaxHoldHistory)
	if err != nil {
		return d, fmt.Errorf("read the history of hold %s: %w", id, err)
	}
	d.Releases, err = collect[tasker.HoldRelease](ctx, db.pool, statement("holdReleases"), id, tasker.MaxHoldHistory)
	if err != nil {
		return d, fmt.Errorf("read the releases of hold %s: %w", id, err)
	}
	access.RedactHoldHistory(ctx, &d)
	return d, nil
}

// An InsertedHold is a hold to store.
type InsertedHold struct {
	tasker.NewHold
	UUID      tasker.ID
	Kind      tasker.HoldKind
	Cause     string
	CauseKey  string
	NextProbe time.Duration // delay before the first probe of a breaker
}

// BeginHold stores a hold, which applies from its commit on. It returns a Conflict if another hold
// has the same scope or too many holds are open, in the namespace or in total.
func (db *DB) BeginHold(ctx context.Context, n InsertedHold) (hold tasker.Hold, err error) {
	err = db.InTx(ctx, func(tx *Tx) error {
		if _, err := tx.Exec(ctx, statement("lockHolds")); err != nil {
			return fmt.Errorf("wait for other holds: %w", err)
		}
		if err := n.checkQuota(ctx, tx); err != nil {
			return err
		}
		var seconds float64
		err := tx.QueryRow(ctx, statement("insertHold"), n.UUID, n.Kind, n.Namespace, n.Handler, n.TaskName, n.StepName, n.CaseID, n.Cause, n.CauseKey,
			n.Reason, n.Owner, n.Until, n.For, n.NextProbe).Scan(&seconds)
		// This index exists until the upgrade from the previous version is complete.
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.ConstraintName == "one_open_breaker_of_a_handler" {
			return tasker.Errorf(tasker.Conflict,
				"the circuit breaker of handler %s is open and still releasing steps", n.Handler)
		}
		if err != nil {
			return fmt.Errorf("begin a hold: %w", err)
		}
		if seconds <= 0 || seconds > tasker.MaxHoldTime.Seconds()+1 {
			return tasker.Errorf(tasker.Invalid,
				"invalid end of the hold: must be in the future, within %s", tasker.MaxHoldTime)
		}
		if err := tx.recordHold(ctx, n.UUID, HoldLine{Event: tasker.HoldBegan, Actor: n.Actor, Reason: n.Reason}); err != nil {
			return err
		}
		if hold, err = findHold(ctx, tx, n.UUID); err != nil {
			return err
		}
		return tx.notifyHold(ctx, hold, tasker.HoldBegan, n.Actor)
	})
	return hold, err
}

// ErrTooManyHolds is wrapped by the Conflict for a hold that exceeds the quota.
var ErrTooManyHolds = errors.New("too many holds are open")

// checkQuota returns a Conflict if another hold has the same scope or the hold exceeds the quota.
func (n InsertedHold) checkQuota(ctx context.Context, tx *Tx) error {
	same, err := collectColumn[tasker.ID](ctx, tx, statement("holdOfSameTarget"), n.Namespace, n.Handler, n.TaskName,
		n.StepName)
	if err != nil {
		return fmt.Errorf("find a hold of the same scope: %w", err)
	}
	if len(same) > 0 {
		return tasker.Errorf(tasker.Conflict,
			"hold %s already has this scope: extend it, or release it first", same[0]).
			WithDetails(map[string]string{"hold_uuid": same[0].String()})
	}
	open, err := queryOne[struct{ InAll, OfNamespace int }](ctx, tx, statement("countOpenHolds"), n.Namespace)
	if err != nil {
		return fmt.Errorf("count the open holds: %w", err)
	}
	const release = "release those that are not needed (tasker-ctl hold list --open"
	var refused *tasker.Error
	switch {
	case open.OfNamespace >= tasker.MaxOpenHoldsPerNamespace:
		refused = tasker.Errorf(tasker.Conflict, "%d holds of namespace %s are open, which is the limit of one namespace; "+release+" --namespace %[2]s)", open.OfNamespace, n.Namespace)
	case open.InAll >= tasker.MaxOpenHolds:
		refused = tasker.Errorf(tasker.Conflict, "%d holds are open, which is the limit of all namespaces together; "+release+")", open.InAll)
	default:
		return nil
	}
	refused.Err = ErrTooManyHolds
	return refused
}

// A HoldLine is an entry in the history of a hold.
type HoldLine struct {
	Event, Actor, Reason string
	Data                 map[string]any
}

// recordHold adds an entry to the history of a hold and, if a person acted, to the audit log.
func (tx *Tx) recordHold(ctx context.Context, id tasker.ID, l HoldLine) error {
	doc := []byte("{}")
	var err error
	if l.Data != nil {
		doc, err = json.Marshal(l.Data)
	}
	if err == nil {
		_, err = tx.Exec(ctx, statement("recordHold"),
			id, l.Event, l.Actor, l.Reason, string(doc))
	}
	if err != nil || l.Actor == tasker.SystemActor {
		return wrapError(err, "record a change of a hold")
	}
	return tx.auditData(ctx, l.Actor, "hold."+l.Event, id, doc)
}

// LockHold locks a hold and returns it. It returns NotFound if the hold does not exist or is not
// visible to the caller.
func (tx *Tx) LockHold(ctx context.Context, id tasker.ID) (tasker.Hold, error) {
	if _, err := tx.Exec(ctx, statement("lockHold"), id); err != nil {
		return tasker.Hold{}, fmt.Errorf("lock hold %s: %w", id, err)
	}
	return findHold(ctx, tx, id)
}

// Now returns the current time of the database clock.
func (tx *Tx) Now(ctx context.Context) (now time.Time, err error) {
	now, err = queryValue[time.Time](ctx, tx, statement("selectNow"))
	return now, wrapError(err, "read the clock of the database")
}

// TryLockHold locks an open hold and returns it with the time of the database. It returns nil if
// the hold is locked or has ended.
func (tx *Tx) TryLockHold(ctx context.Context, id tasker.ID) (hold *tasker.Hold, now time.Time, err error) {
	locked, err := collectColumn[time.Time](ctx, tx, statement("tryLockHold"), id)
	if err != nil || len(locked) == 0 {
		return nil, now, err
	}
	h, err := findHold(ctx, tx, id)
	if err != nil {
		return nil, now, err
	}
	return &h, locked[0], nil
}

// MoveHold stores the state of a locked hold. It adds entries to the history and publishes them.
func (tx *Tx) MoveHold(ctx context.Context, h tasker.Hold, lines ...HoldLine) error {
	_, err := tx.Exec(ctx, statement("moveHold"), h.UUID, h.State, h.Blocks, nonNil(h.Waves), h.Wave, h.WaveSince, h.WaveSteps, h.EndsAt, h.WarnedAt,
		h.NextProbeAt, h.Probes, h.FailedProbes, h.Released, h.Owner)
	if err != nil {
		return fmt.Errorf("update hold %s: %w", h.UUID, err)
	}
	if h.State == tasker.HoldEnded { // pending releases get no outcome, so their attempts count again
		if _, err := tx.Exec(ctx, statement("endHeldReleases"), h.UUID); err != nil {
			return fmt.Errorf("end hold %s: %w", h.UUID, err)
		}
	}
	for _, l := range lines {
		if err := tx.recordHold(ctx, h.UUID, l); err != nil {
			return err
		}
		if err := tx.notifyHold(ctx, h, l.Event, l.Actor); err != nil {
			return err
		}
	}
	return nil
}

// HoldExtendedAt returns when a hold was last extended, or nil.
func (tx *Tx) HoldExtendedAt(ctx context.Context, hold tasker.ID) (*time.Time, error) {
	v, err := queryValue[*time.Time](ctx, tx, statement("holdExtendedAt"), hold, tasker.HoldExtended)
	return v, wrapError(err, "read when hold %s was extended", hold)
}

// PruneHolds deletes up to limit holds that ended longer than age ago.
func (db *DB) PruneHolds(ctx context.Context, age time.Duration, limit int) error {
	_, err := db.pool.Exec(ctx, statement("pruneHolds"), age, limit)
	return wrapError(err, "remove old holds")
}
