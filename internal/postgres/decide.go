package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
)

// DecideSteps is the kind of work that decides steps.
const DecideSteps = "decide"

// StepsToDecide returns the steps that have been due to be decided for longest. It omits the
// namespaces in except.
func (db *DB) StepsToDecide(ctx context.Context, except []string, limit int) ([]tasker.StepRef, error) {
	return db.findDueSteps(ctx, statement("stepsToDecide"), limit, append([]string{}, except...), false)
}

// StepsToDecideOf returns the steps in the given namespaces that have been due to be decided for
// longest.
func (db *DB) StepsToDecideOf(ctx context.Context, namespaces []string, limit int) ([]tasker.StepRef, error) {
	if len(namespaces) == 0 {
		return nil, nil
	}
	return db.findDueSteps(ctx, statement("stepsToDecide"), limit, namespaces, true)
}

// UndecidedStep is a pending step that is due to be decided.
type UndecidedStep struct {
	TaskUUID     tasker.ID
	StepUUID     tasker.ID
	Name         string
	Fence        int64
	JoinRule     tasker.Join
	Dependencies []Dependency
	AsOf         time.Time  // time of the database when this was read
	Again        bool       // an earlier decision has already started the step
	Child        *tasker.ID // its most recent child task, or nil
	StepType     tasker.StepType
	ItemsTotal   *int // set for a map step whose items were created
	ParentsOpen  int  // for such a map step, the number of open items
	DecidingTask
}

// Dependency describes a step on which another step depends.
type Dependency struct {
	Name     string           `json:"name"`
	State    tasker.StepState `json:"state"`
	Retries  bool             `json:"retries"` // failed, and a retry is scheduled
	Names    *bool            `json:"names"`   // whether a decision chose the dependent step; nil if it names none
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

// DecidingSteps returns those of the steps that are still due to be decided. The caller must hold
// the task locks.
func (tx *Tx) DecidingSteps(ctx context.Context, steps []tasker.StepRef) ([]UndecidedStep, error) {
	tasks, ids := toRefArrays(steps)
	list, err := collect[UndecidedStep](ctx, tx, statement("decidingSteps"), tasks, ids)
	return list, wrapError(err, "read steps to decide")
}

// ConditionValues contains the values that the expression of a step can use.
type ConditionValues struct {
	Context     json.RawMessage
	Steps       map[string]ConditionStep
	ResultBytes int64 // total size of the results; if it exceeds the limit, they are omitted
}

// ConditionStep is a step to which an expression refers.
type ConditionStep struct {
	State     tasker.StepState `json:"state"`
	Result    json.RawMessage  `json:"result"`
	HasResult bool             `json:"has_result"`
}

// ConditionValues returns the context of a task and the named steps. It includes their results if
// these have at most most bytes in total. It returns NotFound if the task does not exist.
func (tx *Tx) ConditionValues(ctx context.Context, task tasker.ID, names []string, most int) (ConditionValues, error) {
	return queryRequired[ConditionValues](ctx, tx, newTaskNotFoundError(task), "read the values of a condition",
		statement("conditionValues"), task, names, most)
}

// DecidedStep is a step that is to run.
type DecidedStep struct {
	tasker.StepRef
	WaitUntil *time.Time // end of the wait that an expression computed, or nil
}

// RunDecided starts steps that were decided to run. It returns the namespaces of the enqueued ones.
// The caller must hold the task locks and settle the tasks afterwards.
func (tx *Tx) RunDecided(ctx context.Context, steps []DecidedStep) ([]string, error) {
	refs := mapSlice(steps, func(s DecidedStep) tasker.StepRef { return s.StepRef })
	stored, err := tx.changeSteps(ctx, refs, func(c *core.Change) {
		for _, s := range steps {
			if s.TaskUUID == c.Task.ID {
				c.Run(s.StepUUID, s.WaitUntil)
			}
		}
	})
	return stored.Namespaces, wrapError(err, "start decided steps")
}

// Decision is a step whose result determines which of its dependents run.
type Decision struct {
	StepUUID   tasker.ID
	Name       string
	Dependents []string // names of the direct dependents
}

// Decisions returns those of the steps that are decisions, by step.
func (db *DB) Decisions(ctx context.Context, steps []tasker.StepRef) (map[tasker.ID]Decision, error) {
	return readDecisions(ctx, db.pool, steps)
}

// Decisions is [DB.Decisions] within the transaction.
func (tx *Tx) Decisions(ctx context.Context, steps []tasker.StepRef) (map[tasker.ID]Decision, error) {
	return readDecisions(ctx, tx, steps)
}

func readDecisions(ctx context.Context, q querier, steps []tasker.StepRef) (map[tasker.ID]Decision, error) {
	tasks, ids := toRefArrays(steps)
	list, err := collect[Decision](ctx, q, statement("decisions"), tasks, ids)
	if err != nil {
		return nil, fmt.Errorf("read decisions: %w", err)
	}
	found := make(map[tasker.ID]Decision, len(list))
	for _, d := range list {
		found[d.StepUUID] = d
	}
	return found, nil
}

// PostponeDecisions postpones the decisions on steps until another of their dependencies is done.
func (tx *Tx) PostponeDecisions(ctx context.Context, steps []tasker.StepRef) error {
	tasks, ids := toRefArrays(steps)
	_, err := tx.Exec(ctx, statement("postponeDecisions"), tasks, ids)
	return wrapError(err, "postpone decisions")
}
