package apiv1

import (
	"time"

	"tasker.example/tasker"
)

// Explanation reports why an object is in its state.
type Explanation struct {
	Kind       string                 `json:"kind" enum:"task,step,investigation,case,operation,hold,queue"`
	ID         string                 `json:"id" doc:"Id of the explained object. Empty for a queue."`
	Namespaces []string               `json:"namespaces" doc:"Only operations have several."`
	Name       string                 `json:"name" doc:"Step, template of the task, step of the case, action of the operation, scope of the hold, or handler."`
	TaskUUID   string                 `json:"task_uuid" doc:"Of a task, step or investigation. Otherwise empty."`
	AsOf       time.Time              `json:"as_of"`
	Fact       string                 `json:"fact" enum:"ended,not_started,cycle,operation,result_kept,failed,unattended,held,limit,gate,no_worker,saturated,queue,running,retry,decision,outside,wait,child,items,parents,empty,unknown"`
	Sentence   string                 `json:"sentence"`
	Since      *time.Time             `json:"since" doc:"Null if unknown."`
	Unblocks   string                 `json:"unblocks" doc:"What would let it continue. Empty if nothing would."`
	Turn       string                 `json:"turn" enum:"worker,operator,outside,clock,server,nobody" doc:"The party that acts next."`
	Facts      []tasker.ExplainedFact `json:"facts" doc:"Additional facts."`
	Steps      []tasker.ExplainedStep `json:"steps" doc:"Of a task or investigation: open steps that wait for no other step, at most 20. The first determines the reason."`
	Counts     []tasker.ReasonCount   `json:"counts" doc:"By reason: such steps, the newest open investigations of a case, or the released items of an operation."`
	Looked     int                    `json:"looked" doc:"Number of examined objects, at most 100."`
	More       bool                   `json:"more" doc:"There may be more."`
}

// FromExplanation converts an explanation.
func FromExplanation(e tasker.Explanation) Explanation {
	out := Explanation{
		Kind: string(e.Kind), Namespaces: orEmpty(e.Namespaces), Name: e.Name, TaskUUID: formatID(e.TaskUUID), AsOf: e.AsOf.UTC(),
		Fact: string(e.Reason), Sentence: e.Message, Since: toUTC(e.Since), Unblocks: e.Remedy, Turn: string(e.NextActor),
		Facts: orEmpty(e.Facts), Steps: orEmpty(e.Steps), Counts: orEmpty(e.Counts), Looked: e.Looked, More: e.More,
	}
	if e.ID != (tasker.ID{}) {
		out.ID = e.ID.String()
	}
	return out
}
