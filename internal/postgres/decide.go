package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"tasker.example/tasker"
)

// DecideSteps is the kind of work that decides steps.
const DecideSteps = "decide"

// $1 limit, $2 namespaces, $3 true for the steps of these namespaces or false for all others.
var stepsToDecide = `
SELECT s.task_uuid, s.step_uuid
FROM tasker.workflow_steps s
WHERE s.decide_at <= now()
  AND NOT EXISTS (SELECT FROM tasker.deferred_work w WHERE w.kind = '` + DecideSteps + `' AND w.task_uuid = s.task_uuid AND w.step_uuid = s.step_uuid)
  AND ($2::text[] = '{}' OR $3 = (SELECT t.namespace = ANY ($2) FROM tasker.tasks t WHERE t.task_uuid = s.task_uuid))
ORDER BY s.decide_at, s.task_uuid, s.step_uuid
LIMIT $1`

// StepsToDecide returns steps outside of some namespaces that are due to be decided, longest due first.
func (db *DB) StepsToDecide(ctx context.Context, except []string, limit int) ([]tasker.StepRef, error) {
	return db.dueSteps(ctx, stepsToDecide, limit, append([]string{}, except...), false)
}

// StepsToDecideOf returns steps of the namespaces that are due to be decided, longest due first.
func (db *DB) StepsToDecideOf(ctx context.Context, namespaces []string, limit int) ([]tasker.StepRef, error) {
	if len(namespaces) == 0 {
		return nil, nil
	}
	return db.dueSteps(ctx, stepsToDecide, limit, namespaces, true)
}

// UndecidedStep is a pending step that is due to be decided.
type UndecidedStep struct {
	TaskUUID     tasker.ID
	StepUUID     tasker.ID
	Name         string
	Fence        int64
	JoinRule     tasker.Join
	Dependencies []Dependency
	AsOf         time.Time  // database time of the read
	Again        bool       // a previous decision started it
	Child        *tasker.ID // its last child task
	StepType     tasker.StepType
	ItemsTotal   *int // of an expanded map step
	ParentsOpen  int  // of an expanded map step: its open items
	DecidingTask
}

// Dependency is the state of a step that another step depends on.
type Dependency struct {
	Name     string           `json:"name"`
	State    tasker.StepState `json:"state"`
	Retries  bool             `json:"retries"` // failed with a retry scheduled
	Names    *bool            `json:"names"`   // whether a complete decision chose the step; nil if it chose none
	Decision bool             `json:"decision"`
}

// DecidingTask is the task of an undecided step.
type DecidingTask struct {
	TemplateUUID  tasker.ID
	Namespace     string
	Priority      int
	CorrelationID string
	CreatedAt     time.Time
	Depth         int // number of ancestors
}

var decidingSteps = `
SELECT s.task_uuid, s.step_uuid, s.name, s.fence, s.join_rule, t.template_uuid, t.namespace, t.priority, t.correlation_id, t.created_at, clock_timestamp() AS as_of,
    s.decided_at IS NOT NULL OR s.step_type = 'child' AND EXISTS (
        SELECT FROM tasker.tasks c WHERE c.parent_task_uuid = s.task_uuid AND c.parent_step_uuid = s.step_uuid
    ) AS again, s.child_task_uuid AS child, coalesce(t.depth, 0) AS depth,
    s.step_type, s.items_total, s.parents_open, coalesce((
        SELECT json_agg(json_build_object('name', p.name, 'state', p.state, 'retries', p.next_retry_at IS NOT NULL, 'decision', p.is_decision IS NOT NULL,
            'names', CASE WHEN p.is_decision THEN p.results -> 'goes_on' ? s.name END) ORDER BY p.step_uuid)
        FROM ` + parentsOf("s", "step_uuid, name, state, next_retry_at, is_decision, results") + `
    ), '[]') AS dependencies
FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid
JOIN tasker.tasks t ON t.task_uuid = s.task_uuid
WHERE s.state = 'pending' AND s.decide_at IS NOT NULL
ORDER BY s.task_uuid, s.step_uuid`

// DecidingSteps returns the steps that are still due to be decided. It requires the task locks.
func (tx *Tx) DecidingSteps(ctx context.Context, steps []tasker.StepRef) ([]UndecidedStep, error) {
	tasks, ids := refArrays(steps)
	list, err := collect[UndecidedStep](ctx, tx, decidingSteps, tasks, ids)
	return list, wrap(err, "read steps to decide")
}

const conditionValues = `
SELECT t.context, coalesce((
    SELECT json_object_agg(s.name, json_build_object('state', s.state, 'result', CASE WHEN s.total <= $3 THEN s.results -> 'result' END,
        'has_result', s.results ? 'result'))
    FROM (
        SELECT p.name, p.state, p.results, sum(coalesce(p.results_bytes, octet_length(p.results::text), 0)) OVER () AS total
        FROM tasker.workflow_steps p
        WHERE p.task_uuid = t.task_uuid AND p.name = ANY ($2::text[])
    ) s
), '{}') AS steps, coalesce((
    SELECT sum(coalesce(p.results_bytes, octet_length(p.results::text), 0))
    FROM tasker.workflow_steps p
    WHERE p.task_uuid = t.task_uuid AND p.name = ANY ($2::text[])
), 0) AS result_bytes
FROM tasker.tasks t
WHERE t.task_uuid = $1`

// ConditionValues holds the variables of the condition of a step.
type ConditionValues struct {
	Context     json.RawMessage
	Steps       map[string]ConditionStep
	ResultBytes int64 // total size of the results; above the limit they are omitted
}

// ConditionStep is a step that a condition refers to.
type ConditionStep struct {
	State     tasker.StepState `json:"state"`
	Result    json.RawMessage  `json:"result"`
	HasResult bool             `json:"has_result"`
}

// ConditionValues returns a context and the named steps, with results of up to most bytes in total.
func (tx *Tx) ConditionValues(ctx context.Context, task tasker.ID, names []string, most int) (ConditionValues, error) {
	return required[ConditionValues](ctx, tx, noTask(task), "read the values of a condition",
		conditionValues, task, names, most)
}

// Steps without a handler stay pending and wait.
var runDecided = `
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
moved AS (
    UPDATE tasker.workflow_steps s
    SET decide_at = NULL, decided_at = c.at, updated_at = c.at, wait_until = coalesce(d.wait_until, ` + waitOf("c.at") + `), remind_at = ` + remindOf("c.at") + `,
        state = CASE WHEN s.step_type = 'standard' THEN 'enqueued' ELSE s.state END,
        state_since = c.at,
        attempts = s.attempts + CASE WHEN s.step_type = 'standard' THEN 1 ELSE 0 END,
        expires_at = CASE WHEN s.step_type = 'standard' THEN c.at + interval '1 millisecond' * coalesce(s.queue_ttl_ms, $3) END
    FROM unnest($1::uuid[], $2::uuid[], $5::timestamptz[]) AS d (task_uuid, step_uuid, wait_until)
    CROSS JOIN clock c
    WHERE s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid AND s.state = 'pending' AND s.decide_at IS NOT NULL
    RETURNING ` + returnReady + `, s.attempts, s.state
),
` + readyByDue("moved WHERE state = 'enqueued'") + `,
log AS (
    INSERT INTO tasker.step_history (task_uuid, step_uuid, from_state, to_state, event, attempt, created_at)
    SELECT task_uuid, step_uuid, 'pending', 'enqueued', 'enqueue', attempts, state_since
    FROM moved
    WHERE state = 'enqueued'
    ORDER BY task_uuid, step_uuid
),
` + announced("moved WHERE $4 AND state = 'enqueued'") + `
SELECT DISTINCT namespace FROM moved WHERE state = 'enqueued'`

// DecidedStep is a step to start.
type DecidedStep struct {
	tasker.StepRef
	WaitUntil *time.Time // end of a wait that an expression has computed
}

// RunDecided starts decided steps and returns the namespaces of the enqueued ones. The caller holds
// the task locks and settles the tasks afterwards.
func (tx *Tx) RunDecided(ctx context.Context, steps []DecidedStep) ([]string, error) {
	refs, until := make([]tasker.StepRef, len(steps)), make([]*time.Time, len(steps))
	for i, s := range steps {
		refs[i], until[i] = s.StepRef, s.WaitUntil
	}
	tasks, ids := refArrays(refs)
	list, err := column[string](ctx, tx, runDecided, tasks, ids, tx.queue.ttlMS, tx.queue.announce, until)
	return list, wrap(err, "start decided steps")
}

const decisions = `
SELECT s.step_uuid, s.name, ARRAY(
    SELECT c.name FROM tasker.workflow_steps c WHERE c.task_uuid = s.task_uuid AND c.step_uuid = ANY (s.child_uuids) ORDER BY c.step_uuid
) AS dependents
FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid
WHERE s.is_decision`

// Decision is a step whose result chooses which of its dependents run.
type Decision struct {
	StepUUID   tasker.ID
	Name       string
	Dependents []string // names of the direct dependents
}

// Decisions returns the decisions among the steps, by step.
func (db *DB) Decisions(ctx context.Context, steps []tasker.StepRef) (map[tasker.ID]Decision, error) {
	return readDecisions(ctx, db.pool, steps)
}

// Decisions is [DB.Decisions] inside a transaction.
func (tx *Tx) Decisions(ctx context.Context, steps []tasker.StepRef) (map[tasker.ID]Decision, error) {
	return readDecisions(ctx, tx, steps)
}

func readDecisions(ctx context.Context, q querier, steps []tasker.StepRef) (map[tasker.ID]Decision, error) {
	tasks, ids := refArrays(steps)
	list, err := collect[Decision](ctx, q, decisions, tasks, ids)
	if err != nil {
		return nil, fmt.Errorf("read decisions: %w", err)
	}
	found := make(map[tasker.ID]Decision, len(list))
	for _, d := range list {
		found[d.StepUUID] = d
	}
	return found, nil
}

const postponeDecisions = `
UPDATE tasker.workflow_steps s
SET decide_at = NULL
FROM unnest($1::uuid[], $2::uuid[]) AS d (task_uuid, step_uuid)
WHERE s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid AND s.decide_at IS NOT NULL`

// PostponeDecisions defers the decisions of steps until another of their dependencies is done.
func (tx *Tx) PostponeDecisions(ctx context.Context, steps []tasker.StepRef) error {
	tasks, ids := refArrays(steps)
	_, err := tx.Exec(ctx, postponeDecisions, tasks, ids)
	return wrap(err, "postpone decisions")
}
