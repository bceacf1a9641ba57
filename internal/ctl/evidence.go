package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// printEntry prints an investigation, with the whole snapshot if whole is set.
func (p *program) printEntry(e apiv1.Entry, whole bool) {
	p.done("DLQ Entry Details:")
	fmt.Fprintln(p.out)
	p.fields("  ",
		field{"DLQ Entry UUID", e.DLQEntryUUID}, field{"Task UUID", e.TaskUUID}, field{"Step UUID", or(e.StepUUID, "")},
		field{"Reason", e.DLQReason}, field{"Detail", e.DetailCode},
		field{"Opened for", strings.Join(slices.DeleteFunc([]string{or(e.OriginalReason, ""), or(e.OriginalCode, "")}, func(s string) bool { return s == "" }), ", ")},
	)
	p.fields("  ", subject(e)...)
	p.fields("  ", field{"Failed now", failedNow(e.FailedStep)})
	p.fields("  ",
		field{"Severity", e.Severity}, field{"Meaning", e.Label}, field{"Guidance", e.Guidance}, field{"Detected by", e.DetectedBy},
		field{"Original state", e.OriginalState}, field{"Current task state", e.CurrentTaskState}, field{"Task due", dueText(e.TaskDue)},
		field{"DLQ timestamp", at(&e.DLQTimestamp)}, field{"Resolution status", e.ResolutionStatus},
		field{"Resolution notes", or(e.ResolutionNotes, "")}, field{"Resolved at", at(e.ResolvedAt)},
		field{"Resolved by", resolver(e)}, field{"Recovered at", at(e.RecoveredAt)},
		field{"Predecessor", or(e.PredecessorUUID, "")}, field{"Metadata", compact(e.Metadata)},
	)
	if len(e.History) > 0 {
		fmt.Fprintln(p.out)
		p.printHistory(e.History)
	}
	p.printSnapshot(e, whole)
}

func failedNow(f *tasker.FailedStep) string {
	if f == nil {
		return ""
	}
	return f.Name + " failed since " + at(&f.Since)
}

// resolver returns who resolved an investigation, or "" if it is open, even if a name is already
// stored.
func resolver(e apiv1.Entry) string {
	if e.ResolutionStatus == string(tasker.EntryPending) {
		return ""
	}
	return or(e.ResolvedBy, "")
}

// document is an object in a snapshot. It is decoded field by field because any value may be replaced
// by the text "[redacted]".
type document map[string]json.RawMessage

// readDocument decodes an object. It returns nil if doc is not an object.
func readDocument(doc json.RawMessage) document {
	var p document
	if json.Unmarshal(doc, &p) != nil {
		return nil
	}
	return p
}

// text returns the value of a field as one line.
func (p document) text(name string) string {
	var s string
	if json.Unmarshal(p[name], &s) == nil {
		return s
	}
	return compact(p[name])
}

func (p document) minutes(name string) string {
	var f float64
	if compact(p[name]) == "" || json.Unmarshal(p[name], &f) != nil {
		return p.text(name)
	}
	return minutes(f)
}

func (p document) steps() []document {
	var docs []json.RawMessage
	if json.Unmarshal(p["steps"], &docs) != nil {
		return nil
	}
	var list []document
	for _, doc := range docs {
		if s := readDocument(doc); s != nil {
			list = append(list, s)
		}
	}
	return list
}

func (p document) attempts() string { return p.text("attempts") + "/" + p.text("max_attempts") }

// blocker describes a step that keeps the task from progressing.
func (p document) blocker() string {
	state := p.text("state")
	if failure := failureText(p["error"]); state == string(tasker.StepError) && failure != "" {
		return p.text("name") + " (" + failure + ")"
	}
	switch tasker.StepType(p.text("type")) {
	case tasker.ExternalStep:
		state += ", waits for an external answer"
	case tasker.ChildStep:
		state += ", waits for its child task"
	case tasker.WaitStep:
		state += ", waits for a time"
	case tasker.StandardStep, tasker.DecisionStep, tasker.MapStep:
	}
	return p.text("name") + " (" + state + ")"
}

// subject describes the cause of an investigation: the failed step and its error, the steps that
// block the task, or the reason of the operator who opened it.
func subject(e apiv1.Entry) []field {
	shot := readDocument(e.TaskSnapshot)
	var list []field
	if or(e.OriginalReason, e.DLQReason) == string(tasker.ManualDLQ) && len(e.History) > 0 {
		first := e.History[0]
		list = append(list, field{"Opened by", first.Actor}, field{"Opened because", or(first.Notes, "")})
	}
	if e.StepUUID == nil {
		return append(list, field{"Blocked by", strings.Join(blockers(shot), "; ")})
	}
	if e.OriginalReason != nil {
		return list // the step failed after the snapshot was taken
	}
	for _, s := range shot.steps() {
		if s.text("step_uuid") != *e.StepUUID {
			continue
		}
		list = append(list, field{"Step", s.text("name") + ", " + s.text("state") + " after " + s.attempts() + " attempts"},
			field{"Error", failureText(s["error"])})
	}
	return list
}

// blockers describes the unfinished steps that wait for no other step, failed ones first.
func blockers(shot document) []string {
	var failed, others []string
	for _, s := range shot.steps() {
		state := tasker.StepState(s.text("state"))
		open := s.text("dependencies_open") == "0" &&
			!state.Done() && state != tasker.StepCancelled
		switch {
		case state == tasker.StepError:
			failed = append(failed, s.blocker())
		case open:
			others = append(others, s.blocker())
		}
	}
	list := slices.Concat(failed, others)
	if most := 5; len(list) > most {
		return append(list[:most], fmt.Sprintf("and %d more", len(list)-most))
	}
	return list
}

// printSnapshot prints a summary of the snapshot, or all of it as JSON if whole is set.
func (p *program) printSnapshot(e apiv1.Entry, whole bool) {
	shot := readDocument(e.TaskSnapshot)
	if shot == nil {
		return
	}
	fmt.Fprintf(p.out, "\n  Task Snapshot, as of %s:\n", at(&e.DLQTimestamp))
	if whole {
		fmt.Fprintf(p.out, "  %s\n", indented(e.TaskSnapshot, "  "))
		return
	}
	p.fields("    ",
		field{"Task", shot.text("namespace") + "/" + shot.text("task_name") + " " + shot.text("task_version")},
		field{"Taken", shot.text("detected_at")}, field{"Time in state", shot.minutes("time_in_state_minutes")},
		field{"Threshold", shot.minutes("threshold_minutes")}, field{"Task age", shot.minutes("task_age_minutes")},
		field{"Context", short(readDocument(shot["task"]).text("context"), maxNote)},
		field{"Redaction failed", shot.text("redaction_failed")}, field{"Snapshot failed", shot.text("snapshot_failed")},
		field{"Full snapshot", "tasker-ctl dlq get " + e.DLQEntryUUID + " --snapshot"},
	)
	var rows [][]string
	for _, s := range shot.steps() {
		rows = append(rows, []string{s.text("name"), s.text("state"), s.attempts(), failureText(s["error"])})
	}
	if len(rows) > 0 {
		fmt.Fprintln(p.out)
		p.table([]string{"step", "state", "attempts", "error"}, rows)
	}
}

// printStepsNow prints the current steps of the task below the evidence.
func (p *program) printStepsNow(ctx context.Context, e apiv1.Entry) {
	task, err := readID("task_uuid", e.TaskUUID)
	if err != nil {
		return // the investigation itself is printed
	}
	api, err := p.api()
	if err != nil {
		return
	}
	steps, err := api.Steps(ctx, task)
	if err != nil {
		p.warn("cannot read the current steps: %s", clean(err.Error()))
		return
	}
	fmt.Fprintf(p.out, "\n  Steps now:\n\n")
	list(p, steps, columns{none: "No steps.", names: []string{"step", "state", "attempts", "error"}}, func(s apiv1.Step) []string {
		return []string{s.Name, s.CurrentState, attempts(s), failureText(s.Error)}
	})
}
