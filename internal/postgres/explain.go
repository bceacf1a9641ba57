package postgres

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// Limits of the search for the task to which a step belongs.
const (
	maxTasksOfStep = 1000
	maxStepDelay   = 10 * time.Second // maximum time between the ids of a task and its last step
)

// Explained identifies the resource that has an id.
type Explained struct {
	Kind       tasker.ExplainedKind
	TaskUUID   tasker.OptionalID // zero for cases, operations and holds
	StepUUID   *tasker.ID        // the step itself, or the step of an investigation
	Namespaces []string

	EndedAs, EndedBy string // set for an ended investigation
	EndedAt          *time.Time
	AsOf             time.Time
}

// FindExplained returns the resource that has an id, or nil if there is none.
func (db *DB) FindExplained(ctx context.Context, id tasker.ID) (*Explained, error) {
	found, err := queryOne[Explained](ctx, db.pool, statement("findExplained"), id, idBefore(id, maxStepDelay),
		maxTasksOfStep)
	return found, wrapError(err, "find the resource of an id")
}

// idBefore returns the smallest UUIDv7 whose timestamp is d before that of id.
func idBefore(id tasker.ID, d time.Duration) tasker.ID {
	at := binary.BigEndian.Uint64(id[:8]) >> 16
	at -= min(at, uint64(d.Milliseconds()))
	var first tasker.ID
	binary.BigEndian.PutUint64(first[:8], at<<16)
	return first
}

// ExplainedTask contains the state of a task from which its progress is explained.
type ExplainedTask struct {
	TaskUUID                tasker.ID
	Namespace, TaskName     string
	TaskState               tasker.TaskState
	TaskSince, CreatedAt    time.Time
	StartAt, AttendBy       *time.Time
	Debounced               bool // requests are merged into it until it starts
	MergedRequests          int
	Due                     *tasker.Deadline
	EndsAt                  *time.Time // when max_duration_minutes are over
	StartBy                 *time.Time // latest time of the first claim; nil if there is none or it was met
	ScheduleUUID            *tasker.ID // nil if no schedule created the task, or the schedule or the firing was deleted
	Schedule                string     // name of the schedule
	NominalAt               *time.Time // firing time without jitter
	Firing                  tasker.FiringKind
	Phase                   tasker.TaskPhase
	Outcome                 tasker.TaskOutcome
	UndoSteps, Undone       int        // number of compensation steps, and how many of them are done
	ParentUUID              *tasker.ID // parent task, or nil
	AsOf                    time.Time
	MovedTo, MovedBy        string // state and event of the last transition
	MovedActor, MovedReason string
	EntryUUID               *tasker.ID // newest investigation, or nil
	EntryStatus             tasker.ResolutionStatus
	EntryReason             tasker.Reason
	EntryCode, EntryEndedBy string
	EntryOpened, EntryEnded *time.Time
	EntryRecovered          *time.Time
	WrittenOffBy            string
	WrittenOffAt            *time.Time // when an investigation ended as permanently_failed, or nil
	CaseID                  *tasker.ID
	CaseOwner               string
	CaseEntries             *int64
	TaskFailures            int // number of failures of deferred work on the task
	TaskRetryAt             *time.Time
	ReleaseFailures         int // number of failures to release its held steps
	ReleaseRetryAt          *time.Time
	Steps                   []ExplainedStep `db:"-"`
	More                    bool            `db:"-"` // the task has more steps
}

// ExplainedStep contains the state of a step from which its progress is explained.
type ExplainedStep struct {
	StepUUID                                                  tasker.ID
	ChildUUID                                                 *tasker.ID // last child task, or nil
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
	Assignee                                                  *string // set for an external step
	ErrorType, ErrorMessage                                   string  // the message is redacted
	ParentsDoneAt                                             *time.Time
	Items                                                     *tasker.ItemCounts // set while it waits for its items
	WaitsForPlace                                             bool               // waits for a slot of its map step
	Checkpoint                                                *tasker.Checkpoint // without the value
	WorkerName, WorkerVersion                                 string             // worker of the last attempt
	WorkerSeen                                                *time.Time
	WorkerHeartbeat                                           time.Duration // heartbeat interval of that worker
	OperationUUID                                             *tasker.ID
	ItemState, OperationState, PlannedBy, PausedFor, PausedBy string
	PausedAt, PlannedAt, PlanExpires                          *time.Time
	OperationWave, StepFailures                               int
	Gate                                                      string // minimum worker version of the operation
	StepDue                                                   *tasker.Deadline
	GateVersions                                              []string // versions of the live workers for the step
	StepRetryAt, StepFailedAt                                 *time.Time
	HoldOfStep
}

// ExplainedTasks selects the tasks to explain.
type ExplainedTasks struct {
	Tasks     []tasker.ID
	Steps     int        // maximum number of steps per task
	Ancestors bool       // include steps that wait for their parents
	Step      *tasker.ID // this step comes first, even if it has ended
	CaseUpTo  *int64     // maximum number of open investigations to count per case; nil disables counting
	Errors    int        // number of steps per task whose errors are included
}

// ExplainTasks returns those of the tasks that exist, with their open steps, in order.
func (db *DB) ExplainTasks(ctx context.Context, e ExplainedTasks) ([]ExplainedTask, error) {
	type row struct {
		ExplainedTask
		ExplainedStep
	}
	rows, err := collect[row](ctx, db.pool, statement("selectExplainedTasks"), e.Tasks, e.Steps+1, e.Ancestors, e.Step, e.CaseUpTo, e.Errors)
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

// ExplainedPlace is the position of a step in a queue. If Since is nil, it is the queue as a whole.
type ExplainedPlace struct {
	Namespace, Handler string
	Priority           int
	Since              *time.Time
}

// ExplainedQueue describes the workers of a queue and the number of steps ahead of a position.
type ExplainedQueue struct {
	Namespace, Handler     string
	Live, Draining, Places int64  // live and draining workers, and slots of the live ones
	Taken                  *int64 // used slots; nil if there are too many leases to count
	Elsewhere              int64  // live workers with the handler in other namespaces
	LastName               string // worker that was seen last
	LastHeard              *time.Time
	SaturatedSince, BusyAt *time.Time // nil if not saturated; nil if there was no recent claim
	Before                 *int64     // counted up to [tasker.MaxExplainedQueue]+1 per priority
}

// ExplainQueues describes the workers of queues, in the order of places.
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
	list, err := collect[ExplainedQueue](ctx, db.pool, statement("selectExplainedQueues"), namespaces, handlers, priorities, since,
		tasker.MaxWorkers, maxExplainedLeases, tasker.MaxExplainedQueue, access.IdentityFromContext(ctx).Scope(access.ReadWorkers).List())
	return list, wrapError(err, "read the workers of queues")
}

// ExplainedWaiting contains the number of steps in a queue, up to [tasker.MaxExplainedQueue]+1.
type ExplainedWaiting struct {
	AsOf               time.Time
	Steps              int64      // enqueued steps
	Oldest, NextExpiry *time.Time // among the counted steps
	Awaiting           int64      // expired steps that will be enqueued when a worker is live
	Since              *time.Time
}

// ExplainWaiting counts the steps of a queue.
func (db *DB) ExplainWaiting(ctx context.Context, namespace, handler string) (ExplainedWaiting, error) {
	return queryRequired[ExplainedWaiting](ctx, db.pool, nil, "count the steps of a queue",
		statement("selectExplainedWaiting"), namespace, handler, tasker.MaxExplainedQueue)
}

// ExplainedMembers returns the tasks of the newest open investigations in a case.
func (db *DB) ExplainedMembers(ctx context.Context, id tasker.ID, limit int) ([]tasker.ID, error) {
	list, err := collectColumn[tasker.ID](ctx, db.pool, statement("selectExplainedMembers"), id, limit)
	return list, wrapError(err, "read the tasks of case %s", id)
}

// ExplainedItems returns tasks of items of an operation that were released but not verified yet.
func (db *DB) ExplainedItems(ctx context.Context, id tasker.ID, limit int) ([]tasker.ID, error) {
	list, err := collectColumn[tasker.ID](ctx, db.pool, statement("selectExplainedItems"), id, limit)
	return list, wrapError(err, "read the released items of operation %s", id)
}
