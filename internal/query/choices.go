package query

import (
	"reflect"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// choices contains the values of the types that have a fixed set of them.
var choices = map[reflect.Type][]string{}

// sets contains the values of strings, by the name in the tag choices.
var sets = map[string]func() []string{"topics": tasker.Topics}

func init() {
	register(tasker.TaskStates())
	register([]tasker.TaskPhase{tasker.Compensating})
	register(tasker.StepStates())
	register(tasker.ResolutionStatuses())
	register(tasker.Reasons())
	register(tasker.Healths())
	register(tasker.CaseStates())
	register(tasker.IncidentStates())
	register(tasker.EmissionStates())
	register(tasker.OperationStates())
	register(tasker.ItemStates())
	register(tasker.FiringOutcomes())
	register(tasker.FiringKinds())
	register(tasker.LimitKinds())
	register([]apiv1.ReportFormat{apiv1.ReportJSON, apiv1.ReportMarkdown})
	register([]apiv1.FeedStart{apiv1.FeedNow, apiv1.FeedBeginning})
}

func register[T ~string](values []T) {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	choices[reflect.TypeFor[T]()] = texts
}
