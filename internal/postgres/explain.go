package postgres

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// Bounds of the search for the task of a step.
const (
	maxTasksOfStep = 1000
	maxStepDelay   = 10 * time.Second // between the ids of a task and of its last step
)

// Explained identifies the resource of an id.
type Explained struct {
	Kind       tasker.ExplainedKind
	TaskUUID   *tasker.ID // nil for cases, operations and holds
	StepUUID   *tasker.ID // the step, or the step of an investigation
	Namespaces []string

	EndedAs, EndedBy string // of an ended investigation
	EndedAt          *time.Time
	AsOf             time.Time
}

// FindExplained returns the resource of an id, or nil if there is none.
func (db *DB) FindExplained(ctx context.Context, id tasker.ID) (*Explained, error) {
	found, err := one[Explained](ctx, db.pool, stmt("findExplained"), id, before(id, maxStepDelay), maxTasksOfStep)
	return found, wrap(err, "find the resource of an id")
}

// before returns the smallest version 7 id of the time d before id.
func before(id tasker.ID, d time.Duration) tasker.ID {
	at := binary.BigEndian.Uint64(id[:8]) >> 16
	at -= min(at, uint64(d.Milliseconds()))
	var first tasker.ID
	binary.BigEndian.PutUint64(first[:8], at<<16)
	return first
}

// ExplainedTask is the state of a task that explains its progress.
type ExplainedTask struct {
	TaskUUID                tasker.ID
	Namespace, TaskName     string
	TaskState               tasker.TaskState
	TaskSince, CreatedAt    time.Time
	StartAt, AttendBy       *time.Time
	Debounced               bool // requests are merged into it until it starts
	MergedRequests          int
	Due                     *tasker.Deadline
	EndsAt                  *time.Time // end of max_duration_minutes
	StartBy                 *time.Time // latest first claim; nil if not required or already met
	ScheduleUUID            *tasker.ID // nil without a schedule, or if it or its firing was deleted
	Schedule                string     // name of the schedule
	NominalAt               *time.Time // firing time
	Firing                  tasker.FiringKind
	Phase                   tasker.TaskPhase
	Outcome                 tasker.TaskOutcome
	UndoSteps, Undone       int        // compensation steps, and how many are done
	ParentUUID              *tasker.ID // parent task
	AsOf                    time.Time
	MovedTo, MovedBy        string // state and event of the last transition
	MovedActor, MovedReason string
	EntryUUID               *tasker.ID // newest investigation
	EntryStatus             tasker.ResolutionStatus
	EntryReason             tasker.Reason
	EntryCode, EntryEndedBy string
	EntryOpened, EntryEnded *time.Time
	EntryRecovered          *time.Time
	WrittenOffBy            string
	WrittenOffAt            *time.Time // nil unless an investigation ended as permanently_failed
	CaseID                  *tasker.ID
	CaseOwner               string
	CaseEntries             *int64
	TaskFailures            int // of deferred work
	TaskRetryAt             *time.Time
	ReleaseFailures         int // of the release of held steps
	ReleaseRetryAt          *time.Time
	Steps                   []ExplainedStep `db:"-"`
	More                    bool            `db:"-"` // more steps exist
}

// ExplainedStep is the state of a step that explains its progress.
type ExplainedStep struct {
	StepUUID                                                  tasker.ID
	ChildUUID                                                 *tasker.ID // last child task
	StepName, StepType, Handler                               string
	Priority                                                  int
	StepState                                                 tasker.StepState
	StepSince                                                 time.Time
	ParentUUIDs                                               []tasker.ID
	ParentsOpen, Attempts, MaxAttempts                        int
	LeaseExpiresAt, TimeoutAt, NextRetryAt, LastAttemptedAt   *time.Time
	ExpiresAt, AwaitsWorkerSince                              *time.Time
	DecideAt, DecidedAt, WaitUntil                            *time.Time
	SkipReason                                                string
	Assignee                                                  *string // of an external step
	ErrorType, ErrorMessage                                   string  // the message is redacted
	ParentsDoneAt                                             *time.Time
	Items                                                     *tasker.ItemCounts // of a map step that waits for its items
	WaitsForPlace                                             bool               // an item that waits for a slot of its map step
	Checkpoint                                                *tasker.Checkpoint // without its value
	WorkerName, WorkerVersion                                 string             // of the last attempt
	WorkerSeen                                                *time.Time
	WorkerHeartbeat                                           time.Duration // interval
	OperationUUID                                             *tasker.ID
	ItemState, OperationState, PlannedBy, PausedFor, PausedBy string
	PausedAt, PlannedAt, PlanExpires                          *time.Time
	OperationWave, StepFailures                               int
	Gate                                                      string // minimum worker version of the operation
	StepDue                                                   *tasker.Deadline
	GateVersions                                              []string // versions of live workers for the step
	StepRetryAt, StepFailedAt                                 *time.Time
	HoldOfStep
}

// ExplainedTasks selects tasks to explain.
type ExplainedTasks struct {
	Tasks     []tasker.ID
	Steps     int        // maximum steps per task
	Ancestors bool       // include steps with open parents
	Step      *tasker.ID // comes first, even if it has ended
	CaseUpTo  *int64     // maximum count of open investigations of a case; nil disables counting
	Errors    int        // number of steps per task with errors
}

// ExplainTasks returns the existing tasks with their open steps, in order.
func (db *DB) ExplainTasks(ctx context.Context, e ExplainedTasks) ([]ExplainedTask, error) {
	type row struct {
		ExplainedTask
		ExplainedStep
	}
	rows, err := collect[row](ctx, db.pool, stmt("selectExplainedTasks"), e.Tasks, e.Steps+1, e.Ancestors, e.Step, e.CaseUpTo, e.Errors)
	if err != nil {
		return nil, fmt.Errorf("read tasks to explain them: %w", err)
	}
	var list []ExplainedTask
	for _, r := range rows {
		if len(list) == 0 || list[len(list)-1].TaskUUID != r.TaskUUID {
			list = append(list, r.ExplainedTask)
		}
		t := &list[len(list)-1]
		switch {
		case r.StepUUID == (tasker.ID{}):
		case len(t.Steps) == e.Steps:
			t.More = true
		default:
			t.Steps = append(t.Steps, r.ExplainedStep)
		}
	}
	return list, nil
}

const maxExplainedLeases = 1000

// ExplainedPlace is the position of a step in a queue, or the queue if Since is nil.
type ExplainedPlace struct {
	Namespace, Handler string
	Priority           int
	Since              *time.Time
}

// ExplainedQueue describes the workers of a queue and the number of steps ahead of a position.
type ExplainedQueue struct {
	Namespace, Handler     string
	Live, Draining, Places int64  // live and draining workers; slots of live workers
	Taken                  *int64 // used slots; nil if there are too many leases to count
	Elsewhere              int64  // live workers with the handler in other namespaces
	LastName               string // most recently seen worker
	LastHeard              *time.Time
	SaturatedSince, BusyAt *time.Time // nil if not saturated; nil without a recent claim
	Before                 *int64     // up to [tasker.MaxExplainedQueue]+1 of each priority
}

// ExplainQueues returns the workers of queues, in the order of places.
func (db *DB) ExplainQueues(ctx context.Context, places []ExplainedPlace) ([]ExplainedQueue, error) {
	if len(places) == 0 {
		return nil, nil
	}
	var namespaces, handlers []string
	var priorities []int
	var since []*time.Time
	for _, p := range places {
		namespaces, handlers = append(namespaces, p.Namespace), append(handlers, p.Handler)
		priorities, since = append(priorities, p.Priority), append(since, p.Since)
	}
	list, err := collect[ExplainedQueue](ctx, db.pool, stmt("selectExplainedQueues"), namespaces, handlers, priorities, since,
		tasker.MaxWorkers, maxExplainedLeases, tasker.MaxExplainedQueue, access.IdentityOf(ctx).Scope(access.ReadWorkers).List())
	return list, wrap(err, "read the workers of queues")
}

// ExplainedWaiting counts the steps of a queue, up to [tasker.MaxExplainedQueue]+1.
type ExplainedWaiting struct {
	AsOf               time.Time
	Steps              int64      // enqueued
	Oldest, NextExpiry *time.Time // of the counted steps
	Awaiting           int64      // expired steps that return when a worker is live
	Since              *time.Time
}

// ExplainWaiting counts the steps of a queue.
func (db *DB) ExplainWaiting(ctx context.Context, namespace, handler string) (ExplainedWaiting, error) {
	return required[ExplainedWaiting](ctx, db.pool, nil, "count the steps of a queue",
		stmt("selectExplainedWaiting"), namespace, handler, tasker.MaxExplainedQueue)
}

// ExplainedMembers returns the tasks of the newest open investigations of a case.
func (db *DB) ExplainedMembers(ctx context.Context, id tasker.ID, limit int) ([]tasker.ID, error) {
	list, err := column[tasker.ID](ctx, db.pool, stmt("selectExplainedMembers"), id, limit)
	return list, wrap(err, "read the tasks of case %s", id)
}

// ExplainedItems returns tasks of released, unverified items of an operation.
func (db *DB) ExplainedItems(ctx context.Context, id tasker.ID, limit int) ([]tasker.ID, error) {
	list, err := column[tasker.ID](ctx, db.pool, stmt("selectExplainedItems"), id, limit)
	return list, wrap(err, "read the released items of operation %s", id)
}
