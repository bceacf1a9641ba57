package postgres

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// A step id is created right after its task id, so the task of a step is among those with the
// preceding ids. An index of steps by id would slow down every creation.
const findExplained = `
SELECT kind, task_uuid, step_uuid, namespaces, ended_as, ended_by, ended_at, clock_timestamp() AS as_of
FROM (
    SELECT 'task' AS kind, task_uuid, NULL::uuid AS step_uuid, ARRAY[namespace] AS namespaces, '' AS ended_as, '' AS ended_by, NULL::timestamptz AS ended_at
    FROM tasker.tasks WHERE task_uuid = $1
    UNION ALL
    SELECT 'investigation', task_uuid, step_uuid, ARRAY[namespace],
        CASE WHEN resolution_status = 'pending' THEN '' ELSE resolution_status::text END, coalesce(resolved_by, ''), resolved_at
    FROM tasker.tasks_dlq WHERE dlq_entry_uuid = $1
    UNION ALL
    SELECT 'case', NULL, NULL, ARRAY[namespace], '', '', NULL FROM tasker.cases WHERE case_id = $1
    UNION ALL
    SELECT 'operation', NULL, NULL, namespaces, '', '', NULL FROM tasker.operations WHERE operation_uuid = $1
    UNION ALL
    SELECT 'hold', NULL, NULL, ARRAY[namespace], '', '', NULL FROM tasker.holds WHERE hold_uuid = $1
    UNION ALL (
        SELECT 'step', s.task_uuid, s.step_uuid, ARRAY[s.namespace], '', '', NULL
        FROM (
            SELECT t.task_uuid FROM tasker.tasks t WHERE t.task_uuid < $1 AND t.task_uuid >= $2 ORDER BY t.task_uuid DESC LIMIT $3
        ) t
        JOIN tasker.workflow_steps s ON s.task_uuid = t.task_uuid AND s.step_uuid = $1
    )
) f
LIMIT 1`

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
	found, err := one[Explained](ctx, db.pool, findExplained, id, before(id, maxStepDelay), maxTasksOfStep)
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

// Reads for each task its newest investigation, the newest that ended as permanently failed, its
// last transition and its open steps, in one snapshot. Optionally counts the investigations of its
// case and reads the redacted errors of its first steps.
//
// $1 tasks, $2 maximum steps per task, $3 include steps with open parents, $4 a step to include
// even if it has ended, $5 maximum count of the case or null, $6 number of steps with errors.
var selectExplainedTasks = `
SELECT t.task_uuid, t.namespace, t.name AS task_name, t.state AS task_state, t.state_since AS task_since, t.start_at, t.created_at, t.attend_by, x.start_by, coalesce((t.options ->> 'merged_requests')::int, 0) AS merged_requests, t.options ? 'debounce_key' IS TRUE AS debounced,
    fired.schedule_uuid, coalesce(fired.name, '') AS schedule, fired.nominal_at, coalesce(fired.kind, '') AS firing,
    coalesce(t.phase, '') AS phase, coalesce(t.outcome, '') AS outcome, coalesce(un.steps, 0) AS undo_steps, coalesce(un.done, 0) AS undone,
    clock_timestamp() AS as_of, coalesce(h.to_state, '') AS moved_to, coalesce(h.event, '') AS moved_by, coalesce(h.actor, '') AS moved_actor, coalesce(h.reason, '') AS moved_reason,
    e.dlq_entry_uuid AS entry_uuid, coalesce(e.resolution_status::text, '') AS entry_status, coalesce(e.dlq_reason::text, '') AS entry_reason,
    coalesce(e.detail_code, '') AS entry_code, e.dlq_timestamp AS entry_opened, e.recovered_at AS entry_recovered, coalesce(e.resolved_by, '') AS entry_ended_by, e.resolved_at AS entry_ended,
    coalesce(p.resolved_by, '') AS written_off_by, p.resolved_at AS written_off_at,
    c.case_id, coalesce(c.owner, '') AS case_owner, CASE WHEN $5::bigint IS NOT NULL THEN n.entries END AS case_entries, coalesce(dt.failures, 0) AS task_failures, dt.retry_at AS task_retry_at, coalesce(lg.failures, 0) AS release_failures, lg.retry_at AS release_retry_at,
    coalesce(s.step_uuid, '00000000-0000-0000-0000-000000000000') AS step_uuid, coalesce(s.name, '') AS step_name, coalesce(` + stepType + `, '') AS step_type,
    coalesce(s.handler, '') AS handler, coalesce(s.priority, 0) AS priority, coalesce(s.state, '') AS step_state, coalesce(s.state_since, now()) AS step_since, s.parent_uuids,
    coalesce(s.parents_open, 0) AS parents_open, s.decide_at, s.decided_at, coalesce(s.skip_reason, '') AS skip_reason, s.wait_until, CASE WHEN s.step_type = 'external' THEN (SELECT h.assignee FROM tasker.human_steps h WHERE h.task_uuid = s.task_uuid AND h.step_uuid = s.step_uuid) END AS assignee, s.child_task_uuid AS child_uuid, t.parent_task_uuid AS parent_uuid, coalesce(s.attempts, 0) AS attempts, coalesce(s.max_attempts, 0) AS max_attempts,
    s.lease_expires_at, s.timeout_at, s.next_retry_at, s.last_attempted_at, s.expires_at, s.awaits_worker_since, coalesce(s.error_type, '') AS error_type,
    coalesce(CASE WHEN s.place <= $6 AND s.state = 'error' THEN tasker.redact_error(s.error) ->> 'message' END, '') AS error_message,
    CASE WHEN s.step_type = 'external' AND s.state = 'pending' THEN (
        SELECT max(x.completed_at) FROM tasker.workflow_steps x WHERE x.task_uuid = t.task_uuid AND x.step_uuid = ANY (s.parent_uuids)
    ) END AS parents_done_at,
    ` + checkpointOfStep + ` AS checkpoint, ` + dueOfTask + ` AS due, t.ends_at, CASE WHEN s.step_uuid IS NOT NULL THEN ` + dueOfStep + ` END AS step_due,
    s.map_step_uuid IS NOT NULL AND s.state = 'pending' AS waits_for_place,
    CASE WHEN s.items_total IS NOT NULL AND s.state = 'pending' AND s.decide_at IS NULL THEN tasker.item_counts(s.task_uuid, s.step_uuid) END AS items,
    coalesce(w.name, '') AS worker_name, coalesce(w.version, '') AS worker_version, w.last_heartbeat_at AS worker_seen, coalesce(w.heartbeat_interval, '0') AS worker_heartbeat,
    i.operation_uuid, coalesce(i.item_state, '') AS item_state, coalesce(i.operation_state, '') AS operation_state, coalesce(i.planned_by, '') AS planned_by,
    coalesce(i.paused_for, '') AS paused_for, coalesce(i.paused_by, '') AS paused_by, i.paused_at, i.created_at AS planned_at, i.expires_at AS plan_expires,
    coalesce(i.wave, 0) AS operation_wave, coalesce(i.worker_at_least, '') AS gate, CASE WHEN i.worker_at_least IS NOT NULL THEN ARRAY(
        SELECT w.version FROM tasker.workers w WHERE t.namespace = ANY (w.namespaces) AND s.handler = ANY (w.handlers) AND ` + liveWorker + ` LIMIT 1000
    ) END AS gate_versions,
    coalesce(ds.failures, 0) AS step_failures, ds.retry_at AS step_retry_at, ds.first_failed_at AS step_failed_at,` + holdOfStepColumns + `
FROM unnest($1::uuid[]) WITH ORDINALITY AS u (task_uuid, place)
JOIN tasker.tasks t ON t.task_uuid = u.task_uuid
LEFT JOIN LATERAL (
    SELECT g.schedule_uuid, h.name, g.nominal_at, g.kind
    FROM tasker.schedule_firings g
    JOIN tasker.schedules h ON h.schedule_uuid = g.schedule_uuid
    WHERE t.schedule_uuid IS NOT NULL AND g.task_uuid = t.task_uuid
) fired ON true
LEFT JOIN tasker.task_starts x ON t.options IS NOT NULL AND x.task_uuid = t.task_uuid
LEFT JOIN LATERAL (
    SELECT m.to_state, m.event, m.actor, m.reason FROM tasker.task_history m WHERE m.task_uuid = t.task_uuid ORDER BY m.transition_id DESC LIMIT 1
) h ON true
LEFT JOIN LATERAL (
    SELECT count(*) AS steps, count(*) FILTER (WHERE x.state IN ('complete', 'resolved_manually')) AS done
    FROM tasker.workflow_steps x
    WHERE x.task_uuid = t.task_uuid AND (t.phase IS NOT NULL OR t.outcome IS NOT NULL) AND x.name LIKE 'undo:%'
) un ON true
LEFT JOIN LATERAL (
    SELECT d.* FROM tasker.tasks_dlq d WHERE d.task_uuid = t.task_uuid ORDER BY d.dlq_timestamp DESC LIMIT 1
) e ON true
LEFT JOIN LATERAL (
    SELECT d.resolved_by, d.resolved_at FROM tasker.tasks_dlq d
    WHERE d.task_uuid = t.task_uuid AND d.resolution_status = 'permanently_failed' AND t.phase IS NULL
    ORDER BY d.dlq_timestamp DESC LIMIT 1
) p ON true
LEFT JOIN tasker.case_members cm ON cm.dlq_entry_uuid = e.dlq_entry_uuid
LEFT JOIN tasker.case_fingerprints cf ON cf.fingerprint = cm.fingerprint
LEFT JOIN LATERAL (
    SELECT x.case_id, CASE WHEN x.owned_until > now() THEN x.owner END AS owner FROM tasker.cases x WHERE x.case_id = cf.case_id
) c ON true
LEFT JOIN LATERAL (
    SELECT count(*) AS entries
    FROM (
        SELECT
        FROM tasker.case_fingerprints f
        JOIN tasker.case_members m ON m.namespace = t.namespace AND m.fingerprint = f.fingerprint AND m.ended_at IS NULL
        WHERE f.case_id = c.case_id AND $5::bigint IS NOT NULL
        LIMIT $5::bigint + 1
    ) x
) n ON true
LEFT JOIN LATERAL (
    SELECT d.failures, d.retry_at FROM tasker.deferred_work d
    WHERE d.kind = ANY ('{` + StartTask + `,` + ExpireTask + `,` + RetrySteps + `,` + RedispatchTask + `}') AND d.task_uuid = t.task_uuid AND d.step_uuid = '00000000-0000-0000-0000-000000000000'
    ORDER BY d.failures DESC LIMIT 1
) dt ON true
LEFT JOIN tasker.deferred_work lg ON lg.kind = '` + ReleaseHeld + `' AND lg.task_uuid = t.task_uuid AND lg.step_uuid = '00000000-0000-0000-0000-000000000000'
LEFT JOIN LATERAL (
    SELECT o.*, o.error ->> 'type' AS error_type, row_number() OVER () AS place
    FROM (
        SELECT s.*
        FROM tasker.workflow_steps s
        WHERE s.task_uuid = t.task_uuid AND (s.step_uuid = $4
            OR s.state IN ('pending', 'enqueued', 'in_progress', 'enqueued_for_orchestration', 'error') AND ($3 OR s.parents_open = 0 OR s.decided_at IS NOT NULL))
        ORDER BY s.step_uuid = $4 DESC NULLS LAST, s.parents_open > 0 AND s.decided_at IS NULL, s.state <> 'error', s.next_retry_at IS NOT NULL, s.step_uuid
        LIMIT $2
    ) o
) s ON true
LEFT JOIN tasker.workers w ON w.worker_uuid = s.worker_uuid
LEFT JOIN LATERAL (
    SELECT i.operation_uuid, i.state AS item_state, o.state AS operation_state, o.planned_by, o.paused_for, o.paused_by, o.paused_at, o.created_at, o.expires_at, o.wave, o.worker_at_least
    FROM tasker.operation_items i
    JOIN tasker.operations o ON o.operation_uuid = i.operation_uuid
    WHERE i.task_uuid = t.task_uuid AND i.step_uuid = s.step_uuid AND i.state IN ('planned', 'released', 'running')
) i ON true
LEFT JOIN LATERAL (
    SELECT d.failures, d.retry_at, d.first_failed_at FROM tasker.deferred_work d
    WHERE d.kind = ANY ('{` + ReclaimLease + `,` + FollowUpReport + `,` + RejectInputs + `,` + DecideSteps + `,` + EndWait + `,` + ChildEnded + `,` + ExpireStep + `,` + ExpireUnserved + `}')
      AND d.task_uuid = t.task_uuid AND d.step_uuid = s.step_uuid
    ORDER BY d.failures DESC LIMIT 1
) ds ON true` + holdOfStep + `
ORDER BY u.place, s.place`

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
	rows, err := collect[row](ctx, db.pool, selectExplainedTasks, e.Tasks, e.Steps+1, e.Ancestors, e.Step, e.CaseUpTo, e.Errors)
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

// Selects the most recently seen workers of each queue, their leases, and the number of steps ahead
// of one: those of higher priority and older ones of the same priority.
//
// $1 namespaces, $2 handlers, $3 priorities, $4 times of enqueueing (null skips counting), $5
// maximum workers, $6 maximum leases, $7 maximum count, $8 visible namespaces (null for all).
const selectExplainedQueues = `
WITH seen AS MATERIALIZED (
    SELECT w.worker_uuid, w.name, w.namespaces, w.handlers, w.max_concurrency, w.last_heartbeat_at, w.draining_since, w.left_at,
        (` + liveWorker + `) AS live,
        w.draining_since IS NOT NULL AND w.left_at IS NULL AND w.last_heartbeat_at + 3 * w.heartbeat_interval >= clock_timestamp() AS drains
    FROM (SELECT * FROM tasker.workers ORDER BY last_heartbeat_at DESC LIMIT $5) w
    WHERE w.handlers && $2::text[]
),
leases AS MATERIALIZED (
    SELECT u.task_uuid, u.step_uuid, c.claimed_at
    FROM (SELECT * FROM tasker.claims ORDER BY look_at LIMIT $6::bigint + 1) c
    CROSS JOIN LATERAL unnest(c.tasks, c.steps) AS u (task_uuid, step_uuid)
    LIMIT $6::bigint + 1
),
held AS MATERIALIZED (
    SELECT s.worker_uuid, count(DISTINCT s.step_uuid) AS steps
    FROM leases l
    JOIN tasker.workflow_steps s ON s.task_uuid = l.task_uuid AND s.step_uuid = l.step_uuid
    WHERE s.lease_expires_at IS NOT NULL AND coalesce(s.last_attempted_at, s.state_since) = l.claimed_at
    GROUP BY s.worker_uuid
)
SELECT a.namespace, a.handler, n.live, n.draining, n.places,
    CASE WHEN (SELECT count(*) FROM leases) <= $6::bigint THEN n.taken END AS taken,
    (SELECT count(*) FROM seen w WHERE w.live AND a.handler = ANY (w.handlers) AND a.namespace <> ALL (w.namespaces) AND ($8::text[] IS NULL OR w.namespaces <@ $8)) AS elsewhere,
    coalesce(l.name, '') AS last_name, l.last_heartbeat_at AS last_heard, z.saturated_since, z.busy_at,
    CASE WHEN a.since IS NOT NULL THEN (
        SELECT count(*)
        FROM (
            (
                SELECT FROM tasker.ready_steps r
                WHERE r.namespace = a.namespace AND r.handler = a.handler AND r.priority > a.priority
                LIMIT $7::bigint + 1
            )
            UNION ALL (
                SELECT FROM tasker.ready_steps r
                WHERE r.namespace = a.namespace AND r.handler = a.handler AND r.priority = a.priority AND r.state_since < a.since
                LIMIT $7::bigint + 1
            )
        ) b
    ) END AS before
FROM unnest($1::text[], $2::text[], $3::integer[], $4::timestamptz[]) WITH ORDINALITY AS a (namespace, handler, priority, since, place)
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE w.live) AS live, count(*) FILTER (WHERE w.drains) AS draining,
        coalesce(sum(w.max_concurrency) FILTER (WHERE w.live), 0) AS places,
        coalesce(sum((SELECT h.steps FROM held h WHERE h.worker_uuid = w.worker_uuid)) FILTER (WHERE w.live), 0)::bigint AS taken
    FROM seen w
    WHERE a.namespace = ANY (w.namespaces) AND a.handler = ANY (w.handlers)
) n
LEFT JOIN LATERAL (
    SELECT w.name, w.last_heartbeat_at
    FROM seen w
    WHERE a.namespace = ANY (w.namespaces) AND a.handler = ANY (w.handlers)
    ORDER BY w.last_heartbeat_at DESC LIMIT 1
) l ON true
LEFT JOIN tasker.queues z ON z.namespace = a.namespace AND z.handler = a.handler
ORDER BY a.place`

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
	list, err := collect[ExplainedQueue](ctx, db.pool, selectExplainedQueues, namespaces, handlers, priorities, since,
		tasker.MaxWorkers, maxExplainedLeases, tasker.MaxExplainedQueue, access.IdentityOf(ctx).Scope(access.ReadWorkers).List())
	return list, wrap(err, "read the workers of queues")
}

const selectExplainedWaiting = `
SELECT clock_timestamp() AS as_of, r.steps, r.oldest, r.next_expiry, w.steps AS awaiting, least(r.oldest, w.since) AS since
FROM (
    SELECT count(*) AS steps, min(x.state_since) AS oldest, min(x.expires_at) AS next_expiry
    FROM (
        SELECT s.state_since, s.expires_at FROM tasker.ready_steps s
        WHERE s.namespace = $1 AND s.handler = $2
        ORDER BY s.priority DESC, s.state_since
        LIMIT $3::bigint + 1
    ) x
) r
CROSS JOIN (
    SELECT count(*) AS steps, min(x.awaits_worker_since) AS since
    FROM (
        SELECT s.awaits_worker_since FROM tasker.workflow_steps s
        WHERE s.awaits_worker_since IS NOT NULL AND s.namespace = $1 AND s.handler = $2
        ORDER BY s.awaits_worker_since
        LIMIT $3::bigint + 1
    ) x
) w`

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
		selectExplainedWaiting, namespace, handler, tasker.MaxExplainedQueue)
}

const selectExplainedMembers = `
SELECT d.task_uuid
FROM ` + newestMembers + `
JOIN tasker.tasks_dlq d ON d.dlq_entry_uuid = m.dlq_entry_uuid
ORDER BY m.opened_at DESC, d.task_uuid`

// ExplainedMembers returns the tasks of the newest open investigations of a case.
func (db *DB) ExplainedMembers(ctx context.Context, id tasker.ID, limit int) ([]tasker.ID, error) {
	list, err := column[tasker.ID](ctx, db.pool, selectExplainedMembers, id, limit)
	return list, wrap(err, "read the tasks of case %s", id)
}

const selectExplainedItems = `
SELECT i.task_uuid
FROM unnest('{released,running}'::text[]) AS x (state)
CROSS JOIN LATERAL (
    SELECT i.task_uuid FROM tasker.operation_items i
    WHERE i.operation_uuid = $1 AND i.state = x.state
    ORDER BY i.ordinal
    LIMIT $2
) i
LIMIT $2`

// ExplainedItems returns tasks of released, unverified items of an operation.
func (db *DB) ExplainedItems(ctx context.Context, id tasker.ID, limit int) ([]tasker.ID, error) {
	list, err := column[tasker.ID](ctx, db.pool, selectExplainedItems, id, limit)
	return list, wrap(err, "read the released items of operation %s", id)
}
