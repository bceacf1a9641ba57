package apiv1_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// The values that the OpenAPI document lists for a field are those that the field can have.
func TestTheEnumerationsOfTheWire(t *testing.T) {
	t.Parallel()
	enumerates[tasker.Explanation](t, "Reason", tasker.ConditionReasons())
	enumerates[tasker.ExplainedStep](t, "Reason", tasker.ConditionReasons())
	enumerates[tasker.ReasonCount](t, "Reason", tasker.ConditionReasons())
	enumerates[tasker.Explanation](t, "NextActor", tasker.NextActors())
	enumerates[tasker.ExplainedStep](t, "NextActor", tasker.NextActors())
	enumerates[tasker.Case](t, "State", tasker.CaseStates())
	enumerates[tasker.IncidentCase](t, "State", tasker.CaseStates())
	enumerates[tasker.Incident](t, "State", tasker.IncidentStates())
	enumerates[apiv1.Emission](t, "State", tasker.EmissionStates())
	enumerates[tasker.MessageEmission](t, "State", tasker.EmissionStates())
	enumerates[tasker.PhaseTime](t, "Phase", tasker.Phases())
	enumerates[tasker.Hold](t, "Kind", tasker.HoldKinds())
	enumerates[tasker.Hold](t, "State", tasker.HoldStates())
	enumerates[apiv1.Operation](t, "State", tasker.OperationStates())
	enumerates[apiv1.OperationAct](t, "Type", tasker.Acts())
	enumerates[tasker.OperationItem](t, "State", tasker.ItemStates())
	enumerates[tasker.OperationPause](t, "For", tasker.PauseReasons())
	enumerates[apiv1.OperationSelection](t, "DLQReason", tasker.Reasons())
	enumerates[apiv1.Schedule](t, "State", tasker.ScheduleStates())
	enumerates[apiv1.ScheduleSpec](t, "Overlap", tasker.Overlaps())
	enumerates[apiv1.ScheduleSpec](t, "CatchUp", tasker.CatchUps())
	enumerates[apiv1.Firing](t, "Kind", tasker.FiringKinds())
	enumerates[apiv1.FiringPage](t, "NextKind", tasker.FiringKinds())
	enumerates[apiv1.Firing](t, "Outcome", tasker.FiringOutcomes())
	enumerates[apiv1.Unique](t, "OnConflict", tasker.ConflictPolicies())
	enumerates[tasker.Task](t, "Mark", tasker.MarkKinds())
	enumerates[tasker.Deadline](t, "State", tasker.DeadlineStates())
	enumerates[tasker.AnswerLink](t, "State", tasker.AnswerLinkStates())
}

// enumerates fails the test when a field of T does not list the values of the domain.
func enumerates[T any, V ~string](t *testing.T, field string, values []V) {
	t.Helper()
	of := reflect.TypeFor[T]()
	f, ok := of.FieldByName(field)
	if !ok {
		t.Errorf("%s has no field %s", of, field)
		return
	}
	listed := strings.Split(f.Tag.Get("enum"), ",")
	want := make([]string, len(values))
	for i, v := range values {
		want[i] = string(v)
	}
	slices.Sort(listed)
	slices.Sort(want)
	if !slices.Equal(listed, want) {
		t.Errorf("%s.%s lists the values\n%v, and the domain has\n%v", of, field, listed, want)
	}
}
