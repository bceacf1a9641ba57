package apiv1

import (
	"time"

	"tasker.example/tasker"
)

// Explanation says why something is where it is.
type Explanation struct {
	Kind       string          `json:"kind" enum:"task,step,investigation,case,operation,hold,queue"`
	ID         string          `json:"id" doc:"Of what is explained; empty for a queue."`
	Namespaces []string        `json:"namespaces" doc:"More than one for an operation only."`
	Name       string          `json:"name" doc:"The step, the template of the task, the place of the case, the act of the operation, the scope of the hold, or the handler."`
	TaskUUID   string          `json:"task_uuid" doc:"Whose task or step it is; empty for cases, operations, holds and queues."`
	AsOf       time.Time       `json:"as_of"`
	Fact       string          `json:"fact" enum:"ended,not_started,cycle,operation,result_kept,failed,unattended,held,limit,gate,no_worker,saturated,queue,running,retry,decision,outside,wait,child,items,parents,empty,unknown"`
	Sentence   string          `json:"sentence"`
	Since      *time.Time      `json:"since" doc:"Null when it is not known."`
	Unblocks   string          `json:"unblocks" doc:"What would let it go on; empty when nothing would."`
	Turn       string          `json:"turn" enum:"worker,operator,outside,clock,server,nobody" doc:"Who or what acts next."`
	Facts      []ExplainedFact `json:"facts" doc:"What else is known."`
	Steps      []ExplainedStep `json:"steps" doc:"Of a task or investigation: its open steps that wait for no other, at most 20. The first decides."`
	Counts     []FactCount     `json:"counts" doc:"Of such steps, of the newest open investigations of a case, or of the released items of an operation: how many are kept by each fact."`
	Looked     int             `json:"looked" doc:"How many of those were looked at, at most 100."`
	More       bool            `json:"more" doc:"There are more."`
}

// ExplainedFact is one more thing that is known of what is explained.
type ExplainedFact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// ExplainedStep is a step that has its part in why a task is where it is.
type ExplainedStep struct {
	StepUUID string     `json:"step_uuid"`
	Name     string     `json:"name"`
	State    string     `json:"state"`
	Fact     string     `json:"fact" enum:"ended,not_started,cycle,operation,result_kept,failed,unattended,held,limit,gate,no_worker,saturated,queue,running,retry,decision,outside,wait,child,items,parents,empty,unknown"`
	Sentence string     `json:"sentence"`
	Since    *time.Time `json:"since" doc:"Null when it is not known."`
	Unblocks string     `json:"unblocks" doc:"What would let it go on; empty when nothing would."`
	Turn     string     `json:"turn" enum:"worker,operator,outside,clock,server,nobody" doc:"Who or what acts next."`
}

// FactCount is how many are kept where they are by one fact.
type FactCount struct {
	Fact     string `json:"fact" enum:"ended,not_started,cycle,operation,result_kept,failed,unattended,held,limit,gate,no_worker,saturated,queue,running,retry,decision,outside,wait,child,items,parents,empty,unknown"`
	Count    int    `json:"count"`
	TaskUUID string `json:"task_uuid" doc:"One of their tasks."`
}

// FromExplanation converts an explanation.
func FromExplanation(e tasker.Explanation) Explanation {
	out := Explanation{
		Kind: string(e.Kind), Namespaces: append([]string{}, e.Namespaces...), Name: e.Name, TaskUUID: idText(e.TaskUUID), AsOf: e.AsOf.UTC(),
		Fact: string(e.Reason), Sentence: e.Message, Since: utc(e.Since), Unblocks: e.Remedy, Turn: string(e.NextActor),
		Facts: []ExplainedFact{}, Steps: []ExplainedStep{}, Counts: []FactCount{}, Looked: e.Looked, More: e.More,
	}
	if e.ID != (tasker.ID{}) {
		out.ID = e.ID.String()
	}
	for _, f := range e.Facts {
		out.Facts = append(out.Facts, ExplainedFact(f))
	}
	for _, s := range e.Steps {
		out.Steps = append(out.Steps, ExplainedStep{StepUUID: s.UUID.String(), Name: s.Name, State: string(s.State),
			Fact: string(s.Reason), Sentence: s.Message, Since: utc(s.Since), Unblocks: s.Remedy, Turn: string(s.NextActor)})
	}
	for _, c := range e.Counts {
		out.Counts = append(out.Counts, FactCount{Fact: string(c.Reason), Count: c.Count, TaskUUID: c.Task.String()})
	}
	return out
}
