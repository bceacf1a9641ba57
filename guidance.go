package tasker

import "fmt"

// Describe sets the label, the severity and the guidance of e.
func (e *Entry) Describe() {
	cause := CauseOf(e.Reason, e.DetailCode)
	e.Label, e.Severity, e.Guidance = cause.Label, cause.Severity, e.adaptGuidance(cause.Guidance)
}

// adaptGuidance returns the next step of the investigation in its current state. It is the guidance
// of the cause unless that is already done or would be rejected.
func (e *Entry) adaptGuidance(guidance string) string {
	ofStep := e.StepUUID != nil || e.Reason == MaxRetriesExceeded
	failed := e.FailedStep
	switch {
	case e.ResolutionStatus != EntryPending:
		return fmt.Sprintf("The investigation has ended as %s: nothing is left to do here.", e.ResolutionStatus)
	case e.Reason == ManualDLQ && failed == nil:
		return guidance
	case e.CurrentTaskState == TaskComplete || e.CurrentTaskState == TaskCancelled:
		return fmt.Sprintf("The task is %s, and its steps cannot be changed any more. End this investigation.", e.CurrentTaskState)
	case failed == nil && (ofStep || e.RecoveredAt != nil):
		return "No step of the task has failed now. Follow the task, and end this investigation once it has completed."
	case failed == nil:
		return guidance
	case ofStep && (e.StepUUID == nil || *e.StepUUID == failed.UUID):
		return fmt.Sprintf("Step %s: %s", failed.Name, guidance)
	default:
		return fmt.Sprintf("Step %s has failed. Read its error as it is now and fix the cause, then reset step %[1]s; "+
			"or complete it with a result you vouch for.", failed.Name)
	}
}
