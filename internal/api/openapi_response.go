package api

import (
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"tasker.example/tasker"
)

// responseEnums lists the values of properties of responses, by schema and property. The Go types
// of these properties are strings.
func responseEnums() map[string][]any {
	tasks, steps := toEnum(tasker.TaskStates()), toEnum(tasker.StepStates())
	reasons, resolutions := toEnum(tasker.Reasons()), toEnum(tasker.ResolutionStatuses())
	enums := map[string][]any{
		"Task.status": tasks, "EvidenceTask.state": tasks, "StalenessLine.current_state": tasks,
		"Step.current_state": steps, "EvidenceStep.state": steps,
	}
	for _, schema := range []string{"Entry", "UpdatedEntry", "InvestigationQueueEntry"} {
		enums[schema+".original_state"] = tasks
		enums[schema+".current_task_state"] = tasks
	}
	enums["InvestigationQueueEntry.current_state"] = tasks
	for _, schema := range []string{"Entry", "UpdatedEntry", "EndedEntry", "EvidenceEntry"} {
		enums[schema+".resolution_status"] = resolutions
	}
	for _, schema := range []string{"Entry", "UpdatedEntry", "EntryStats", "EvidenceEntry", "InvestigationQueueEntry"} {
		enums[schema+".dlq_reason"] = reasons
	}
	return enums
}

func toEnum[T ~string](values []T) []any {
	list := make([]any, len(values))
	for i, v := range values {
		list[i] = string(v)
	}
	return list
}

// uuidProperties lists properties with UUIDs whose names do not end with _uuid.
var uuidProperties = []string{
	"accepted", "awaits_task", "case_id", "home_case_id", "incident_id", "lead_case_id", "lost", "merged_into", "recreated_from", "released",
}

// textProperties lists properties that are no UUIDs in all responses, although their names end with
// _uuid: they can be empty, or have what a worker sent.
var textProperties = []string{
	"Case.dlq_entry_uuid", "CaseDetail.dlq_entry_uuid", "Explanation.task_uuid", "RejectedResult.step_uuid",
}

// describeResponses completes the schemas that no request uses: states have their values, UUIDs
// their format, and unknown keys are allowed, because a later server may add some.
func (d *apiDescription) describeResponses(requested map[*huma.Schema]bool) {
	enums := responseEnums()
	for name, schema := range d.registry.Map() {
		if requested[schema] {
			continue
		}
		if schema.AdditionalProperties == false {
			schema.AdditionalProperties = nil
		}
		for key, property := range schema.Properties {
			if property.Type == huma.TypeArray && property.Items != nil {
				property = property.Items
			}
			if property.Type != huma.TypeString || property.Format != "" || len(property.Enum) > 0 {
				continue
			}
			property.Enum = enums[name+"."+key]
			if slices.Contains(textProperties, name+"."+key) {
				continue
			}
			if strings.HasSuffix(key, "_uuid") || strings.HasSuffix(key, "_uuids") || slices.Contains(uuidProperties, key) {
				property.Format = "uuid"
			}
		}
	}
}
