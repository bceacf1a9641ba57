package engine_test

import (
	"fmt"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
)

func TestClaimedStepsSurviveALostDecision(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	d.CheckAtEnd(t)
	cut := &modelCut{}
	h := withWorker(enginetest.At(t, d.URL, postgres.Options{Tracer: cut}))
	route := enginetest.Step("route")
	route.Type = tasker.DecisionStep
	h.Template("routed", route, enginetest.Step("air", "route"))
	h.Template("plain", enginetest.Step("other"))
	given, unanswered := 0, 0
	for n := range 12 {
		h.Create("routed")
		decision := h.ClaimOne("route")
		other := h.Create("plain")
		cut.left.Store(int64(n + 1))
		wrong := success(decision, `{}`) // which says nothing, and so fails the attempt
		receipt, err := h.Engine.Report(t.Context(), h.Worker, []tasker.Outcome{wrong}, 1)
		cut.left.Store(0)
		held := h.Count(`SELECT count(*) FROM tasker.workflow_steps WHERE task_uuid = $1 AND state = 'in_progress'`, other)
		check(t, held == len(receipt.Next),
			"cut at statement %d: %d steps are held and %d are handed out: %v", n+1, held, len(receipt.Next), err)
		given += len(receipt.Next)
		if err != nil || receipt.Rejected[0].Code == tasker.Unavailable { // its worker sends it again
			unanswered++
			h.Eventually("the outcome is answered", func() bool {
				again, err := h.Engine.Report(t.Context(), h.Worker, []tasker.Outcome{wrong}, 0)
				return err == nil && again.Rejected[0].Code != tasker.Unavailable
			})
		}
		h.Succeed(receipt.Next...)
		if len(receipt.Next) == 0 {
			h.Complete("other")
		}
	}
	check(t, given != 0 && unanswered != 0,
		"work was handed out %d times, and decisions were not taken %d times", given, unanswered)
}

func TestReportReadyReturnsOnlyStepsItMadeReady(t *testing.T) {
	t.Parallel()
	h := withWorker(enginetest.NewWith(t, postgres.Options{PriorityAge: -1}))
	h.Template("chain", enginetest.Step("one"), enginetest.Step("two", "one"))
	h.Create("chain")
	first := h.ClaimOne("one")
	h.Create("chain")
	second := h.ClaimOne("one")
	h.Create("chain")
	third := h.ClaimOne("one")
	h.Create("chain") // its first step waits
	for _, tt := range []struct {
		about string
		tasker.Outcome
		claim int
		want  string
	}{
		{"a success", success(first, `1`), 5, "[two]"},
		{"a success that asks for nothing", success(second, `1`), 0, "[]"},
		{"a failure", tasker.Outcome{Lease: third.Lease(), Failure: &tasker.Failure{Message: "no"}}, 5, "[]"},
	} {
		receipt, err := h.Engine.ReportReady(h.Context(), h.Worker, []tasker.Outcome{tt.Outcome}, tt.claim)
		h.Must(err)
		var next []string
		for _, a := range receipt.Next {
			next = append(next, a.Name)
		}
		check(t, len(receipt.Accepted) == 1 && fmt.Sprint(next) == tt.want,
			"%s is answered with %q, want %s: %+v", tt.about, next, tt.want, receipt)
	}
}
