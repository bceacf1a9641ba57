package engine_test

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/postgres"
)

func TestOverdueWorkIsMeasuredPerKind(t *testing.T) {
	h := newHarness(t)
	late := func() map[string]float64 {
		t.Helper()
		found, err := h.DB.Overdue(t.Context())
		h.Must(err)
		for kind, seconds := range found {
			found[kind] = float64(time.Duration(seconds) * time.Second / (100 * time.Second)) // a test takes no 100 seconds
		}
		return found
	}
	none := map[string]float64{"start": 0, "start_by": 0, "deadline": 0, "decide": 0, "wait": 0, "remind": 0, "attributes": 0, "child_ended": 0, "cancel_child": 0, "request": 0, "schedule": 0, "schedule_ended": 0}
	if diff := cmp.Diff(none, late()); diff != "" {
		t.Errorf("without any work:\n%s", diff)
	}
	asked := enginetest.Step("asked")
	asked.Type, asked.Handler, asked.TimeoutSeconds, asked.RemindAfterSeconds = tasker.ExternalStep, tasker.Handler{}, 60, []int{30}
	decided := enginetest.Step("decided")
	decided.When = "true"
	h.Template("late", asked, decided)
	h.family()
	_, kid := h.started()
	h.Cancel(kid)
	parent := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "order", Context: json.RawMessage(`{"customer": 1}`)})
	h.Accepted(success(h.ClaimOne("charge"), `{"by": "charge"}`))
	h.Create("late")
	scheduled, err := h.Engine.CreateSchedule(t.Context(), hourlySpec(func(s *tasker.ScheduleSpec) { s.Template = "late" }), ann)
	h.Must(err)
	made, err := h.Engine.TriggerSchedule(t.Context(), scheduled.UUID, ann)
	h.Must(err)
	at := time.Now().Add(time.Hour)
	h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "late", StartAt: at})
	h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "late", StartBy: at})
	h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "late", DueAt: at})
	if diff := cmp.Diff(none, late()); diff != "" {
		t.Errorf("before any of it is late:\n%s", diff)
	}
	h.Must(errOf(h.Engine.Pass(t.Context(), "decide")))
	h.Cancel(parent)
	h.Cancel(*made.TaskUUID)
	h.Create("late")
	for _, sql := range []string{
		`UPDATE tasker.tasks SET start_at = now() - interval '3 minutes' WHERE state = 'pending'`,
		`UPDATE tasker.workflow_steps SET decide_at = now() - interval '5 minutes' WHERE decide_at IS NOT NULL`,
		`UPDATE tasker.workflow_steps SET wait_until = now() - interval '7 minutes' WHERE step_type = 'external' AND wait_until IS NOT NULL`,
		`UPDATE tasker.workflow_steps SET remind_at = now() - interval '9 minutes' WHERE remind_at IS NOT NULL`,
		`UPDATE tasker.workflow_steps SET attributes_at = now() - interval '16 minutes' WHERE name = 'decided'`,
		`UPDATE tasker.child_signals SET created_at = now() - CASE kind WHEN 'ended' THEN interval '11 minutes' ELSE interval '13 minutes' END`,
		`SELECT tasker.create_task('shop', 'late')`,
		`UPDATE tasker.task_requests SET created_at = now() - interval '23 minutes'`,
		`UPDATE tasker.schedules SET fire_at = now() - interval '15 minutes'`,
		`UPDATE tasker.task_starts SET start_by = now() - interval '19 minutes'`,
		`UPDATE tasker.deadlines SET look_at = now() - interval '21 minutes'`,
		`UPDATE tasker.schedule_signals SET created_at = now() - interval '17 minutes'`,
	} {
		h.Exec(sql)
	}
	if diff := cmp.Diff(map[string]float64{"start": 1, "start_by": 11, "deadline": 12, "decide": 3, "wait": 4, "remind": 5, "child_ended": 6, "cancel_child": 7, "attributes": 9, "request": 13, "schedule": 9, "schedule_ended": 10}, late()); diff != "" {
		t.Errorf("in hundreds of seconds:\n%s", diff)
	}
	for range 5 {
		h.Tick()
	}
	if diff := cmp.Diff(none, late()); diff != "" {
		t.Errorf("once it is done:\n%s", diff)
	}
}

func TestDocsListEachKindOfWork(t *testing.T) {
	h := newHarness(t)
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	h.Must(err)
	named := func(metric string) []string {
		row := regexp.MustCompile("(?m)^\\| `" + metric + "` .*$").FindString(string(page))
		_, of, _ := strings.Cut(row, "`kind`: ")
		of, _, _ = strings.Cut(of, " | ")
		var kinds []string
		for _, m := range regexp.MustCompile("`([a-z_]+)`[,]? ?").FindAllStringSubmatch(of, -1) {
			kinds = append(kinds, m[1])
		}
		slices.Sort(kinds)
		return kinds
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(append(h.Engine.Kinds(), "sweep", postgres.ReleaseHeld))), named("tasker.deferred.rows")); diff != "" {
		t.Errorf("kinds of work that is set aside (-known +named):\n%s", diff)
	}
	late, err := h.DB.Overdue(t.Context())
	h.Must(err)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(late)), named("tasker.due.late_seconds")); diff != "" {
		t.Errorf("kinds of work that may be late (-known +named):\n%s", diff)
	}
}

func TestSnapshotNamesParentsAndChildren(t *testing.T) {
	h := newHarness(t)
	h.Template("kid", undoable(enginetest.Step("did")), enginetest.Once(enginetest.Step("fails", "did")))
	h.Template("boss", child("kid", "waits"), enginetest.Once(enginetest.Step("fails")))
	boss := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "boss", Context: json.RawMessage(`{}`)})
	h.Tick()
	kid := h.childOf(boss, "waits")
	fail := func() {
		t.Helper()
		for range 3 {
			for _, a := range h.Claim() {
				if a.Name == "did" {
					h.Accepted(success(a, `{}`))
				} else {
					h.Accepted(failure(a, false))
				}
			}
		}
	}
	fail()
	evidence := func(task tasker.ID, want string) {
		t.Helper()
		e, err := h.DB.Entry(t.Context(), h.Entry(task).UUID)
		h.Must(err)
		check(t, strings.Contains(string(e.Snapshot), want),
			"the evidence of task %s does not have %s: %s", task, want, e.Snapshot)
	}
	evidence(boss, `"child_task_uuid": "`+kid.String()+`"`)
	evidence(kid, `"parent_task_uuid": "`+boss.String()+`"`)
	evidence(kid, `"parent_step_uuid": "`+h.Step(boss, "waits").UUID.String()+`"`)
	evidence(kid, `"phase": null`)
	task, _ := h.charged()
	h.compensate(task)
	h.Accepted(failure(h.ClaimOne("undo:charge"), false))
	evidence(task, `"phase": "compensating"`)
}
