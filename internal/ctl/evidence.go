package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"tasker.example/tasker"
)

// printEntry prints an investigation, with the whole snapshot if whole is set.
func (p *program) printEntry(e tasker.Entry, whole bool) {
	original := []string{string(e.OriginalReason), string(e.OriginalCode)}
	p.printDone("DLQ Entry Details:")
	fmt.Fprintln(p.out)
	p.printFields("  ",
		field{"DLQ Entry UUID", e.UUID}, field{"Task UUID", e.TaskUUID},
		field{"Step UUID", e.StepUUID},
		field{"Reason", e.Reason}, field{"Detail", e.DetailCode},
		field{"Opened for", slices.DeleteFunc(original, func(s string) bool { return s == "" })},
	)
	p.printFields("  ", describeSubject(e)...)
	p.printFields("  ", field{"Failed now", formatFailedStep(e.FailedStep)})
	p.printFields("  ",
		field{"Severity", e.Severity}, field{"Meaning", e.Label}, field{"Guidance", e.Guidance}, field{"Detected by", e.DetectedBy},
		field{"Original state", e.OriginalState}, field{"Current task state", e.CurrentTaskState}, field{"Task due", formatDue(e.TaskDue)},
		field{"DLQ timestamp", e.At}, field{"Resolution status", e.ResolutionStatus},
		field{"Resolution notes", e.ResolutionNotes}, field{"Resolved at", e.ResolvedAt},
		field{"Resolved by", formatResolver(e)}, field{"Recovered at", e.RecoveredAt},
		field{"Predecessor", e.PredecessorUUID}, field{"Metadata", e.Metadata},
	)
	if len(e.History) > 0 {
		fmt.Fprintln(p.out)
		p.printHistory(e.History)
	}
	p.printSnapshot(e, whole)
}

func formatFailedStep(f *tasker.FailedStep) string {
	if f == nil {
		return ""
	}
	return f.Name + " failed since " + formatTime(&f.Since)
}

// formatResolver returns who resolved an investigation, or "" if it is open, even if a name is already
// stored.
func formatResolver(e tasker.Entry) string {
	if e.ResolutionStatus == tasker.EntryPending {
		return ""
	}
	return orDefault(e.ResolvedBy, "")
}

// document is an object in a snapshot. It is decoded field by field because any value may be replaced
// by the text "[redacted]".
type document map[string]json.RawMessage

// parseDocument decodes an object. It returns nil if doc is not an object.
func parseDocument(doc json.RawMessage) document {
	var p document
	if json.Unmarshal(doc, &p) != nil {
		return nil
	}
	return p
}

// formatText returns the value of a field as one line.
func (p document) formatText(name string) string {
	var s string
	if json.Unmarshal(p[name], &s) == nil {
		return s
	}
	return compact(p[name])
}

func (p document) formatMinutes(name string) string {
	var f float64
	if compact(p[name]) == "" || json.Unmarshal(p[name], &f) != nil {
		return p.formatText(name)
	}
	return formatMinutes(f)
}

func (p document) listSteps() []document {
	var docs []json.RawMessage
	if json.Unmarshal(p["steps"], &docs) != nil {
		return nil
	}
	var list []document
	for _, doc := range docs {
		if s := parseDocument(doc); s != nil {
			list = append(list, s)
		}
	}
	return list
}

func (p document) formatAttempts() string {
	return p.formatText("attempts") + "/" + p.formatText("max_attempts")
}

// describeBlocker describes a step that keeps the task from progressing.
func (p document) describeBlocker() string {
	state := p.formatText("state")
	if failure := formatFailure(p["error"]); state == string(tasker.StepError) && failure != "" {
		return p.formatText("name") + " (" + failure + ")"
	}
	switch tasker.StepType(p.formatText("type")) {
	case tasker.ExternalStep:
		state += ", waits for an external answer"
	case tasker.ChildStep:
		state += ", waits for its child task"
	case tasker.WaitStep:
		state += ", waits for a time"
	case tasker.StandardStep, tasker.DecisionStep, tasker.MapStep:
	}
	return p.formatText("name") + " (" + state + ")"
}

// describeSubject describes the cause of an investigation: the failed step and its error, the steps that
// block the task, or the reason of the operator who opened it.
func describeSubject(e tasker.Entry) []field {
	shot := parseDocument(e.Snapshot)
	var list []field
	if cmp.Or(string(e.OriginalReason), string(e.Reason)) == string(tasker.ManualDLQ) && len(e.History) > 0 {
		first := e.History[0]
		list = append(list, field{"Opened by", first.Actor}, field{"Opened because", first.Notes})
	}
	if e.StepUUID == nil {
		return append(list, field{"Blocked by", strings.Join(listBlockers(shot), "; ")})
	}
	if e.OriginalReason != "" {
		return list // the step failed after the snapshot was taken
	}
	for _, s := range shot.listSteps() {
		if s.formatText("step_uuid") != e.StepUUID.String() {
			continue
		}
		list = append(list, field{"Step", s.formatText("name") + ", " + s.formatText("state") + " after " +
			s.formatAttempts() + " attempts"},
			field{"Error", formatFailure(s["error"])})
	}
	return list
}

// listBlockers describes the unfinished steps that wait for no other step, failed ones first.
func listBlockers(shot document) []string {
	var failed, others []string
	for _, s := range shot.listSteps() {
		state := tasker.StepState(s.formatText("state"))
		open := s.formatText("dependencies_open") == "0" &&
			!state.Done() && state != tasker.StepCancelled
		switch {
		case state == tasker.StepError:
			failed = append(failed, s.describeBlocker())
		case open:
			others = append(others, s.describeBlocker())
		}
	}
	list := slices.Concat(failed, others)
	if most := 5; len(list) > most {
		return append(list[:most], fmt.Sprintf("and %d more", len(list)-most))
	}
	return list
}

// printSnapshot prints a summary of the snapshot, or all of it as JSON if whole is set.
func (p *program) printSnapshot(e tasker.Entry, whole bool) {
	shot := parseDocument(e.Snapshot)
	if shot == nil {
		return
	}
	fmt.Fprintf(p.out, "\n  Task Snapshot, as of %s:\n", formatTime(&e.At))
	if whole {
		fmt.Fprintf(p.out, "  %s\n", indentJSON(e.Snapshot, "  "))
		return
	}
	p.printFields("    ",
		field{"Task", shot.formatText("namespace") + "/" + shot.formatText("task_name") + " " +
			shot.formatText("task_version")},
		field{"Taken", shot.formatText("detected_at")}, field{"Time in state", shot.formatMinutes("time_in_state_minutes")},
		field{"Threshold", shot.formatMinutes("threshold_minutes")},
		field{"Task age", shot.formatMinutes("task_age_minutes")},
		field{"Context", truncate(parseDocument(shot["task"]).formatText("context"), maxNote)},
		field{"Redaction failed", shot.formatText("redaction_failed")},
		field{"Snapshot failed", shot.formatText("snapshot_failed")},
		field{"Full snapshot", "tasker-ctl dlq get " + e.UUID.String() + " --snapshot"},
	)
	var rows [][]string
	for _, s := range shot.listSteps() {
		rows = append(rows, []string{s.formatText("name"), s.formatText("state"), s.formatAttempts(),
			formatFailure(s["error"])})
	}
	if len(rows) > 0 {
		fmt.Fprintln(p.out)
		p.printTable([]string{"step", "state", "attempts", "error"}, rows)
	}
}

// printStepsNow prints the current steps of the task below the evidence.
func (p *program) printStepsNow(ctx context.Context, e tasker.Entry) {
	steps, err := p.client.Steps(ctx, e.TaskUUID)
	if err != nil {
		p.warn("cannot read the current steps: %s", clean(err.Error()))
		return
	}
	fmt.Fprintf(p.out, "\n  Steps now:\n\n")
	printList(p, steps, "No steps.", "step, state, attempts, error", func(s tasker.Step) []any {
		return []any{s.Name, s.State, formatAttempts(s), formatFailure(s.Error)}
	})
}
