package postgres

import (
	"context"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/payload"
)

// CreateRequested is the kind of work that creates the tasks requested with tasker.create_task.
const CreateRequested = "request"

// maxRefusal limits the stored message of a refused request, in bytes.
const maxRefusal = 2000

// RequestsToCreate returns the UUIDs of requested tasks that are to be created, oldest first.
func (db *DB) RequestsToCreate(ctx context.Context, limit int) ([]tasker.ID, error) {
	return db.findDueTasks(ctx, statement("requestsToCreate"), limit)
}

// TakeTaskRequest deletes a request and returns it. It returns nil if the request does not exist,
// was refused or is being processed by another transaction.
func (tx *Tx) TakeTaskRequest(ctx context.Context, task tasker.ID) (*tasker.TaskRequest, error) {
	r, err := queryOne[tasker.TaskRequest](ctx, tx, statement("takeTaskRequest"), task)
	return r, wrapError(err, "take a task request")
}

// RefuseTaskRequest records why a requested task cannot be created.
func (db *DB) RefuseTaskRequest(ctx context.Context, task tasker.ID, code tasker.Code, message string) error {
	return exec(ctx, db.pool, "refuse a task request", statement("refuseTaskRequest"), task, string(code), payload.CleanText(message, maxRefusal))
}

// TaskRequest returns a request, or nil if there is none for the task or the caller cannot see it.
func (db *DB) TaskRequest(ctx context.Context, task tasker.ID) (*tasker.TaskRequest, error) {
	r, err := queryOne[tasker.TaskRequest](ctx, db.pool, statement("selectTaskRequest"), task)
	if err != nil || r == nil || !access.ScopeFromContext(ctx).Has(r.Namespace) {
		return nil, wrapError(err, "read a task request")
	}
	hideTaskRequest(ctx, r)
	return r, nil
}

// TaskRequests lists task requests, newest first, and reports whether there are more.
func (db *DB) TaskRequests(ctx context.Context, f tasker.TaskRequestFilter) (list []tasker.TaskRequest, more bool, err error) {
	list, more, err = queryPage[tasker.TaskRequest](ctx, db.pool, f.Limit, "list task requests", statement("listTaskRequests"),
		access.ScopeFromContext(ctx).List(), f.Namespace, f.Refused, f.Limit+1, f.Offset)
	for i := range list {
		hideTaskRequest(ctx, &list[i])
	}
	return list, more, err
}

// hideTaskRequest removes the payloads that the caller may not read.
func hideTaskRequest(ctx context.Context, r *tasker.TaskRequest) {
	if access.PayloadScopeFromContext(ctx).Has(r.Namespace) {
		return
	}
	r.Context = nil
	if r.ErrorMessage != "" {
		r.ErrorMessage = access.Hidden
	}
}

// DeleteTaskRequest deletes a request and records it in the audit log. It returns NotFound if there
// is none.
func (db *DB) DeleteTaskRequest(ctx context.Context, task tasker.ID, actor string) error {
	type row struct{ Namespace, Name string }
	r, err := queryRequired[row](ctx, db.pool, tasker.Errorf(tasker.NotFound, "no request for task %s: it was created, or never requested", task),
		"delete a task request", statement("deleteTaskRequest"), task)
	if err != nil {
		return err
	}
	return db.Audit(ctx, actor, "task_request.dismissed", task.String(), []byte(`{"template":"`+payload.CleanText(r.Namespace+"/"+r.Name, maxRefusal)+`"}`))
}

// RefusedTaskRequests counts refused requests.
func (db *DB) RefusedTaskRequests(ctx context.Context) (int64, error) {
	n, err := queryValue[int64](ctx, db.pool, statement("countRefusedTaskRequests"))
	return n, wrapError(err, "count refused task requests")
}
