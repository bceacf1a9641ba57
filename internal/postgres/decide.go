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

// StepsToDecide returns steps outside of some namespaces that are due to be decided, longest due first.
func (db *DB) StepsToDecide(ctx context.Context, except []string, limit int) ([]tasker.StepRef, error) {
	return db.dueSteps(ctx, stmt("stepsToDecide"), limit, append([]string{}, except...), false)
}

// StepsToDecideOf returns steps of the namespaces that are due to be decided, longest due first.
func (db *DB) StepsToDecideOf(ctx context.Context, namespaces []string, limit int) ([]tasker.StepRef, error) {
	if len(namespaces) == 0 {
		return nil, nil
	}
	return db.dueSteps(ctx, stmt("stepsToDecide"), limit, namespaces, true)
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

// DecidingSteps returns the steps that are still due to be decided. It requires the task locks.
func (tx *Tx) DecidingSteps(ctx context.Context, steps []tasker.StepRef) ([]UndecidedStep, error) {
	tasks, ids := refArrays(steps)
	list, err := collect[UndecidedStep](ctx, tx, stmt("decidingSteps"), tasks, ids)
	return list, wrap(err, "read steps to decide")
}

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
		stmt("conditionValues"), task, names, most)
}

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
	list, err := column[string](ctx, tx, stmt("runDecided"), tasks, ids, tx.queue.ttlMS, tx.queue.announce, until)
	return list, wrap(err, "start decided steps")
}

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
	list, err := collect[Decision](ctx, q, stmt("decisions"), tasks, ids)
	if err != nil {
		return nil, fmt.Errorf("read decisions: %w", err)
	}
	found := make(map[tasker.ID]Decision, len(list))
	for _, d := range list {
		found[d.StepUUID] = d
	}
	return found, nil
}

// PostponeDecisions defers the decisions of steps until another of their dependencies is done.
func (tx *Tx) PostponeDecisions(ctx context.Context, steps []tasker.StepRef) error {
	tasks, ids := refArrays(steps)
	_, err := tx.Exec(ctx, stmt("postponeDecisions"), tasks, ids)
	return wrap(err, "postpone decisions")
}
