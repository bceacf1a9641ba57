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

// A picture is a part of a snapshot. Any value of it may be hidden, and is then a
// word in place of what it was; so it is read piece by piece.
type picture map[string]json.RawMessage

// readPicture returns nothing for what is no object.
func readPicture(doc json.RawMessage) picture {
	var p picture
	if json.Unmarshal(doc, &p) != nil {
		return nil
	}
	return p
}

// text spells a value in a line.
func (p picture) text(name string) string {
	var s string
	if json.Unmarshal(p[name], &s) == nil {
		return s
	}
	return compact(p[name])
}

// minutes spells a number of minutes.
func (p picture) minutes(name string) string {
	var f float64
	if compact(p[name]) == "" || json.Unmarshal(p[name], &f) != nil {
		return p.text(name)
	}
	return minutes(f)
}

func (p picture) steps() []picture {
	var docs []json.RawMessage
	if json.Unmarshal(p["steps"], &docs) != nil {
		return nil
	}
	var list []picture
	for _, doc := range docs {
		if s := readPicture(doc); s != nil {
			list = append(list, s)
		}
	}
	return list
}

func (p picture) attempts() string { return p.text("attempts") + "/" + p.text("max_attempts") }

// standing tells a step that a task stands at.
func (p picture) standing() string {
	state := p.text("state")
	if failure := failureText(p["error"]); state == string(tasker.StepError) && failure != "" {
		return p.text("name") + " (" + failure + ")"
	}
	if p.text("type") == string(tasker.ExternalStep) {
		state += ", waits for an answer from outside"
	}
	return p.text("name") + " (" + state + ")"
}

// what tells what an investigation is about: the step that failed and why, the
// steps that the task stood at, or what the person says who opened it.
func what(e apiv1.Entry) []field {
	shot := readPicture(e.TaskSnapshot)
	var list []field
	if e.DLQReason == string(tasker.ManualDLQ) && len(e.History) > 0 {
		first := e.History[0]
		list = append(list, field{"Opened by", first.Actor}, field{"Opened because", or(first.Notes, "")})
	}
	if e.StepUUID == nil {
		return append(list, field{"Stood at", strings.Join(stoodAt(shot), "; ")})
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

// stoodAt lists the steps that were not at their end and waited for no other,
// those that failed first.
func stoodAt(shot picture) []string {
	var failed, others []string
	for _, s := range shot.steps() {
		state := tasker.StepState(s.text("state"))
		open := s.text("dependencies_open") == "0" &&
			!slices.Contains([]tasker.StepState{tasker.StepComplete, tasker.StepResolvedManually, tasker.StepCancelled}, state)
		switch {
		case state == tasker.StepError:
			failed = append(failed, s.standing())
		case open:
			others = append(others, s.standing())
		}
	}
	list := slices.Concat(failed, others)
	if most := 5; len(list) > most {
		return append(list[:most], fmt.Sprintf("and %d more", len(list)-most))
	}
	return list
}

// oneSnapshot prints the evidence; whole means as it is.
func (p *program) oneSnapshot(e apiv1.Entry, whole bool) {
	shot := readPicture(e.TaskSnapshot)
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
		field{"Context", short(readPicture(shot["task"]).text("context"), maxNote)},
		field{"Redaction failed", shot.text("redaction_failed")}, field{"Snapshot failed", shot.text("snapshot_failed")},
		field{"All of it", "tasker-ctl dlq get " + e.DLQEntryUUID + " --snapshot"},
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

// stepsNow prints the steps of the task as they are now, below the evidence.
func (p *program) stepsNow(ctx context.Context, e apiv1.Entry) {
	task, err := readID("task_uuid", e.TaskUUID)
	if err != nil {
		return // the server is at fault; the entry itself is shown
	}
	api, err := p.api()
	if err != nil {
		return
	}
	steps, err := api.Steps(ctx, task)
	if err != nil {
		p.warn("The steps as they are now cannot be read: %s", clean(err.Error()))
		return
	}
	rows := make([][]string, len(steps))
	for i, s := range steps {
		rows[i] = []string{s.Name, s.CurrentState, fmt.Sprintf("%d/%d", s.Attempts, s.MaxAttempts), failureText(s.Error)}
	}
	fmt.Fprintf(p.out, "\n  Steps now:\n\n")
	p.table([]string{"step", "state", "attempts", "error"}, rows)
}
