package postgres

import (
	"context"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// AddWorker registers a worker. It returns Unavailable if there are too many live workers in total,
// or more than maxOfNamespace in one of its namespaces.
func (db *DB) AddWorker(ctx context.Context, w tasker.WorkerSpec, r tasker.Registration, maxOfNamespace int) error {
	type row struct {
		Added   bool
		Crowded string
	}
	done, err := queryOne[row](ctx, db.pool, statement("insertWorker"),
		r.WorkerUUID, w.Name, w.Namespaces, w.Handlers, w.Version, w.MaxConcurrency, r.HeartbeatInterval, r.LeaseDuration, access.IdentityFromContext(ctx).Subject,
		tasker.MaxWorkers, maxOfNamespace, tasker.MaxWorkerRows)
	switch {
	case err != nil:
		return fmt.Errorf("register worker: %w", err)
	case done.Added:
		return nil
	case done.Crowded != "":
		return tasker.Errorf(tasker.Unavailable, "the limit of %d live workers in namespace %q is reached "+
			"(limits.workers): stop some or raise the limit, then try again; "+
			"a worker that is stopped frees its slot at once, a killed worker when its lease "+
			"expires", maxOfNamespace, done.Crowded)
	default:
		return tasker.Errorf(tasker.Unavailable,
			"the limit of %d live workers is reached: stop some and try again", tasker.MaxWorkers)
	}
}

// Worker returns the specification and the lease duration of a worker, or NotFound.
func (db *DB) Worker(ctx context.Context, id tasker.ID) (w tasker.WorkerSpec, lease time.Duration, err error) {
	type row struct {
		tasker.WorkerSpec
		Lease time.Duration
	}
	r, err := queryRequired[row](ctx, db.pool, newUnknownWorkerError(id), "read worker", statement("worker"), id)
	return r.WorkerSpec, r.Lease, err
}

// WorkerAccess describes who registered a worker and for which namespaces.
type WorkerAccess struct {
	Namespaces   []string
	RegisteredBy string // empty if authentication was disabled
}

// WorkerAccess returns the registration of a worker for authorization, or nil if there is none.
func (db *DB) WorkerAccess(ctx context.Context, id tasker.ID) (*WorkerAccess, error) {
	w, err := queryOne[WorkerAccess](ctx, db.pool, statement("workerAccess"), id)
	return w, wrapError(err, "read the registration of worker %s", id)
}

// RemoveWorker marks a worker as offline. It returns NotFound if the worker is not registered.
func (db *DB) RemoveWorker(ctx context.Context, id tasker.ID) error {
	tag, err := db.pool.Exec(ctx, statement("removeWorker"), id)
	if err != nil {
		return fmt.Errorf("remove worker: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return newUnknownWorkerError(id)
	}
	return nil
}

// DrainWorker prevents a worker from claiming steps. Repeating it has no effect. It returns
// NotFound if the worker is not registered.
func (db *DB) DrainWorker(ctx context.Context, id tasker.ID) error {
	drained, err := queryFirst[tasker.ID](ctx, db.pool, statement("drainWorker"), id,
		access.IdentityFromContext(ctx).Subject)
	if err == nil && drained == nil {
		return newUnknownWorkerError(id)
	}
	return wrapError(err, "drain worker")
}

// RecordHeartbeats records heartbeats. It returns, for each worker that is registered, whether it
// is draining.
func (db *DB) RecordHeartbeats(ctx context.Context, ids []tasker.ID) (drains map[tasker.ID]bool, err error) {
	err = retry(ctx, func() (err error) {
		drains, err = selectMap[tasker.ID, bool](ctx, db.pool, "record heartbeats", statement("recordHeartbeats"), ids)
		return err
	})
	return drains, err
}

// PruneWorkers deletes workers that have sent no heartbeat for age, and returns their number.
func (db *DB) PruneWorkers(ctx context.Context, age time.Duration) (int64, error) {
	tag, err := db.pool.Exec(ctx, statement("pruneWorkers"), age)
	return tag.RowsAffected(), wrapError(err, "delete offline workers")
}

// Workers lists workers, most recently seen first, and reports whether there are more.
func (db *DB) Workers(ctx context.Context, limit, offset int) ([]tasker.Worker, bool, error) {
	return queryPage[tasker.Worker](ctx, db.pool, limit, "list workers", statement("selectWorkers"), limit+1, offset, access.ScopeFromContext(ctx).List())
}

// WorkerWithHealth returns a worker, which may be offline, or NotFound.
func (db *DB) WorkerWithHealth(ctx context.Context, id tasker.ID) (tasker.Worker, error) {
	return queryRequired[tasker.Worker](ctx, db.pool, newUnknownWorkerError(id), "read worker", statement("selectWorker"),
		id)
}
