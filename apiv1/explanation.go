package apiv1

import (
	"time"

	"tasker.example/tasker"
)

// Explanation says why something is where it is.
type Explanation struct {
	Kind       string                 `json:"kind" enum:"task,step,investigation,case,operation,hold,queue"`
	ID         string                 `json:"id" doc:"Of what is explained; empty for a queue."`
	Namespaces []string               `json:"namespaces" doc:"More than one for an operation only."`
	Name       string                 `json:"name" doc:"The step, the template of the task, the place of the case, the act of the operation, the scope of the hold, or the handler."`
	TaskUUID   string                 `json:"task_uuid" doc:"Whose task or step it is; empty for cases, operations, holds and queues."`
	AsOf       time.Time              `json:"as_of"`
	Fact       string                 `json:"fact" enum:"ended,not_started,cycle,operation,result_kept,failed,unattended,held,limit,gate,no_worker,saturated,queue,running,retry,decision,outside,wait,child,items,parents,empty,unknown"`
	Sentence   string                 `json:"sentence"`
	Since      *time.Time             `json:"since" doc:"Null when it is not known."`
	Unblocks   string                 `json:"unblocks" doc:"What would let it go on; empty when nothing would."`
	Turn       string                 `json:"turn" enum:"worker,operator,outside,clock,server,nobody" doc:"Who or what acts next."`
	Facts      []tasker.ExplainedFact `json:"facts" doc:"What else is known."`
	Steps      []tasker.ExplainedStep `json:"steps" doc:"Of a task or investigation: its open steps that wait for no other, at most 20. The first decides."`
	Counts     []tasker.ReasonCount   `json:"counts" doc:"Of such steps, of the newest open investigations of a case, or of the released items of an operation: how many are kept by each fact."`
	Looked     int                    `json:"looked" doc:"How many of those were looked at, at most 100."`
	More       bool                   `json:"more" doc:"There are more."`
}

// FromExplanation converts an explanation.
func FromExplanation(e tasker.Explanation) Explanation {
	out := Explanation{
		Kind: string(e.Kind), Namespaces: orEmpty(e.Namespaces), Name: e.Name, TaskUUID: idText(e.TaskUUID), AsOf: e.AsOf.UTC(),
		Fact: string(e.Reason), Sentence: e.Message, Since: utc(e.Since), Unblocks: e.Remedy, Turn: string(e.NextActor),
		Facts: orEmpty(e.Facts), Steps: orEmpty(e.Steps), Counts: orEmpty(e.Counts), Looked: e.Looked, More: e.More,
	}
	if e.ID != (tasker.ID{}) {
		out.ID = e.ID.String()
	}
	return out
}
