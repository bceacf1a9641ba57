package core_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
)

// docs/reference/states.md is made from the tables, so that it cannot be wrong.
const statesDoc = "../../docs/reference/states.md"

func TestStatesDoc(t *testing.T) {
	t.Parallel()
	got := statesPage()
	if os.Getenv("UPDATE_DOCS") != "" {
		if err := os.WriteFile(statesDoc, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(statesDoc)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Error("docs/reference/states.md is not what the tables say; run: UPDATE_DOCS=1 go test ./internal/core")
	}
}

func statesPage() string {
	var b strings.Builder
	b.WriteString(`# States

The tests of ` + "`internal/core`" + ` generate this page from its tables.
Events that are not in a diagram are rejected.

## Tasks

The stable states of a task are ` + resting() + `.
It passes through the other states inside one transaction; its history has them.
` + "`resolved_manually`" + ` is a state of the specification that no event reaches:
a task whose steps were all resolved manually is complete.

` + diagram(core.TaskMoves.Edges()) + `
## Steps

` + diagram(core.StepMoves.Edges()) + `
` + "`enqueued_for_orchestration`" + ` is a step with an accepted result whose follow-up failed;
the follow-up is retried automatically.
A step in ` + "`error`" + ` with a ` + "`next_retry_at`" + ` is retried automatically;
without one it has failed permanently.

## Branches

` + joinsTable() + `
## Step actions

`)
	actions := []struct {
		action tasker.StepAction
		event  core.StepEvent
	}{
		{tasker.ResetForRetry, core.Reset}, {tasker.ResolveManually, core.Resolve}, {tasker.CompleteManually, core.CompleteByHand},
	}
	b.WriteString("| state of the step | `reset_for_retry` | `resolve_manually` | `complete_manually` |\n|---|---|---|---|\n")
	for _, s := range tasker.StepStates() {
		fmt.Fprintf(&b, "| `%s` |", s)
		for _, a := range actions {
			b.WriteString(" " + mayOperate(s, a.event) + " |")
		}
		b.WriteString("\n")
	}
	b.WriteString(`
*with interrupt*: the step continues automatically, so the action needs ` + "`\"interrupt\": true`" + `.
Its lease is revoked, and later reports of its worker are rejected. The flag also detects a second operator who acts on the same step.

Other actions are rejected with 409; the error has the state and the allowed actions.
No action is allowed on the steps of a task that is ` + "`pending`, `complete` or `cancelled`" + `, or whose investigation ended as ` + "`permanently_failed`" + `.

## Investigations

` + diagram(core.EntryMoves.Edges()))
	return b.String()
}

// joinsTable says what becomes of a step by its join, for every set of standings of its dependencies.
func joinsTable() string {
	var b strings.Builder
	b.WriteString("A dependency has *succeeded* (`complete`, `resolved_manually`), is *skipped*, has *failed* (`error` without a `next_retry_at`) or is *open* " +
		"(any other state).\nThe table shows the effect on a step for each combination of dependencies and each `join`. " +
		"If the effect is *run* and the step has a `when`, the condition is evaluated:\nif it is false, the step is `skipped`.\n\n" +
		"| dependencies | `all` | `none_failed` | `any` |\n|---|---|---|---|\n")
	kinds := []core.Standing{core.Succeeded, core.Skipped, core.Failed, core.Open}
	for set := range 1 << len(kinds) {
		var list []core.Standing
		var names []string
		for i, k := range kinds {
			if set&(1<<i) != 0 {
				list, names = append(list, k), append(names, string(k))
			}
		}
		if len(names) == 0 {
			names = []string{"none"}
		}
		fmt.Fprintf(&b, "| %s |", strings.Join(names, ", "))
		for _, join := range []tasker.Join{tasker.JoinAll, tasker.JoinNoneFailed, tasker.JoinAny} {
			fmt.Fprintf(&b, " %s |", core.ApplyJoin(join, list))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n*wait*: the step is evaluated again when the next dependency ends. *blocked*: the step stays `pending` until the failed dependency is repaired.\n" +
		"A skipped step stays skipped: a failure that can still be repaired never causes a skip.\n" +
		"A step that a decision does not name is skipped when its other dependencies are done, whatever its `join`.\n")
	return b.String()
}

func resting() string {
	var names []string
	for _, s := range core.Resting() {
		names = append(names, "`"+string(s)+"`")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

func mayOperate(s tasker.StepState, e core.StepEvent) string {
	to, err := core.StepMoves.Next(s, e)
	if err != nil {
		return "no"
	}
	how := "→ `" + string(to) + "`"
	if core.IsHeld(s) {
		how += ", with interrupt"
	}
	return how
}

func diagram[S, E ~string](edges []core.Edge[S, E]) string {
	var b strings.Builder
	b.WriteString("```mermaid\nstateDiagram-v2\n    [*] --> pending\n")
	var leaves []string
	for _, e := range edges {
		fmt.Fprintf(&b, "    %s --> %s: %s\n", e.From, e.To, e.Event)
		if !slices.ContainsFunc(edges, func(o core.Edge[S, E]) bool { return o.From == e.To }) && !slices.Contains(leaves, string(e.To)) {
			leaves = append(leaves, string(e.To))
		}
	}
	slices.Sort(leaves)
	for _, l := range leaves {
		fmt.Fprintf(&b, "    %s --> [*]\n", l)
	}
	b.WriteString("```\n")
	return b.String()
}
