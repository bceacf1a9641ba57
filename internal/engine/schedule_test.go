package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/pgtest/fixture"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/schedule"
)

var ann = engine.ScheduleChange{Actor: "ann", Reason: "because"}

// hourlySpec is a schedule that makes a task of template nightly every hour.
func hourlySpec(change func(*tasker.ScheduleSpec)) tasker.ScheduleSpec {
	s := tasker.ScheduleSpec{
		Namespace: enginetest.Namespace, Name: "nightly", Template: "nightly", ScheduleRule: tasker.ScheduleRule{Every: time.Hour}, Overlap: tasker.OverlapAllow,
	}
	if change != nil {
		change(&s)
	}
	return s
}

// scheduled is a harness with a template and a schedule of it.
func scheduled(t *testing.T, change func(*tasker.ScheduleSpec)) (*harness, tasker.Schedule) {
	t.Helper()
	h := newHarness(t)
	h.Template("nightly", enginetest.Once(enginetest.Step("report")))
	s, err := h.Engine.CreateSchedule(t.Context(), hourlySpec(change), ann)
	h.Must(err)
	return h, s
}

// passes has so much time pass for schedules, and has servers do what is due.
func (h *harness) passes(d time.Duration) {
	h.Helper()
	h.elapses(d)
	h.Tick()
	h.Tick() // what the first has left, such as an instant that waited
}

// elapses has so much time pass for schedules.
func (h *harness) elapses(d time.Duration) {
	h.Helper()
	h.Exec(`UPDATE tasker.schedules SET next_at = next_at - $1::interval, fire_at = fire_at - $1::interval, anchor = anchor - $1::interval,
		start_at = start_at - $1::interval, end_at = end_at - $1::interval, paused_at = paused_at - $1::interval, paused_until = paused_until - $1::interval`, d)
	for _, by := range []time.Duration{d + 1000*time.Hour, -1000 * time.Hour} { // by way of a time that no other has: the key is unique
		h.Exec(`UPDATE tasker.schedule_firings SET nominal_at = nominal_at - $1::interval, nominal_until = nominal_until - $1::interval,
			decided_at = decided_at - $1::interval, ended_at = ended_at - $1::interval`, by)
	}
}

// firings says what became of the instants of the only schedule, the oldest first.
func (h *harness) firings() string {
	h.Helper()
	rows, err := h.Admin().Query(h.Context(), `SELECT format('%s*%s', outcome, instants) FROM tasker.schedule_firings ORDER BY nominal_at, kind`)
	h.Must(err)
	words, err := pgx.CollectRows(rows, pgx.RowTo[string])
	h.Must(err)
	return strings.Join(words, " ")
}

func (h *harness) wantFirings(want string) {
	h.Helper()
	got := h.firings()
	require(h, got == want, "the firings are %q, want %q", got, want)
}

// scheduledTasks are the tasks that schedules have made, the oldest first.
func (h *harness) scheduledTasks() []tasker.ID {
	h.Helper()
	rows, err := h.Admin().Query(h.Context(), `SELECT task_uuid FROM tasker.schedule_firings WHERE task_uuid IS NOT NULL ORDER BY nominal_at`)
	h.Must(err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[tasker.ID])
	h.Must(err)
	return list
}

func TestScheduleCreatesTasks(t *testing.T) {
	h, s := scheduled(t, func(s *tasker.ScheduleSpec) {
		s.Context, s.NominalKey, s.Priority, s.Tags = json.RawMessage(`{"region":"eu","at":"x"}`), "at", 7, []string{"night"}
	})
	h.Tick()
	h.wantFirings("")
	h.passes(time.Hour + time.Second)
	h.wantFirings("started*1")
	d, err := h.Engine.Schedule(t.Context(), s.UUID, 3)
	h.Must(err)
	task := h.Task(*d.Firings[0].TaskUUID)
	nominal := d.Firings[0].NominalAt
	var values map[string]string
	h.Must(json.Unmarshal(task.Context, &values))
	if at, err := time.Parse(time.RFC3339, values["at"]); err != nil || !at.Equal(nominal) || values["region"] != "eu" {
		t.Errorf("the context is %s at %s", task.Context, nominal)
	}
	check(t, task.Priority == 7 && slices.Equal(task.Tags, []string{"night"}) && task.Initiator == "schedule:nightly",
		"the task is %+v", task)
	check(t, len(d.Next) == 3 && d.Next[0].Equal(nominal.Add(time.Hour)) && d.State() == tasker.ScheduleActive,
		"after %s the next are %v", nominal, d.Next)
	check(t, len(d.History) == 1 && d.History[0].Event == "created" && d.History[0].Actor == "ann",
		"the history is %+v", d.History)
	h.WantCount(1, `SELECT count(*) FROM tasker.audit_events WHERE action = 'schedule.created' AND actor = 'ann'`)
	h.Complete("report")
	h.passes(time.Hour)
	h.wantFirings("started*1 started*1")
}

func TestOverlapAndCatchUpPolicies(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*tasker.ScheduleSpec)
		do     func(h *harness)
		want   string
	}{
		"outage, last": {nil, func(h *harness) { h.passes(5*time.Hour + 10*time.Minute) }, "missed*4 started*1"},
		"outage, none": {func(s *tasker.ScheduleSpec) { s.CatchUp = tasker.CatchUpNone }, func(h *harness) { h.passes(5*time.Hour + 10*time.Minute) }, "missed*5"},
		"outage, all": {func(s *tasker.ScheduleSpec) { s.CatchUp, s.CatchUpMax = tasker.CatchUpAll, 3 }, func(h *harness) { h.passes(5*time.Hour + 10*time.Minute) },
			"missed*2 started*1 started*1 started*1"},
		"outages, none, share a row": {func(s *tasker.ScheduleSpec) { s.CatchUp = tasker.CatchUpNone }, func(h *harness) {
			h.passes(2*time.Hour + 10*time.Minute)
			h.passes(2 * time.Hour)
		}, "missed*4"},
		"skip": {func(s *tasker.ScheduleSpec) { s.Overlap = "" }, func(h *harness) {
			h.passes(time.Hour + time.Second)
			h.passes(time.Hour)
			h.passes(time.Hour)
			h.Complete("report")
			h.passes(time.Hour)
		}, "started*1 skipped*2 started*1"},
		"skip while in error": {func(s *tasker.ScheduleSpec) { s.Overlap = tasker.OverlapSkip }, func(h *harness) {
			h.passes(time.Hour + time.Second)
			h.Accepted(failure(h.ClaimOne("report"), false))
			h.passes(time.Hour)
		}, "started*1 skipped*1"},
		"given up is ended": {func(s *tasker.ScheduleSpec) { s.Overlap = tasker.OverlapSkip }, func(h *harness) {
			h.passes(time.Hour + time.Second)
			h.Accepted(failure(h.ClaimOne("report"), false))
			h.Abandon(h.scheduledTasks()[0])
			h.passes(time.Hour)
		}, "started*1 started*1"},
		"queue": {func(s *tasker.ScheduleSpec) { s.Overlap = tasker.OverlapQueue }, func(h *harness) {
			h.passes(time.Hour + time.Second)
			h.passes(time.Hour)
			h.passes(time.Hour)
			h.wantFirings("started*1 queued*1 merged*1")
			h.Complete("report")
			h.Tick()
			h.Tick()
		}, "started*1 started*1 merged*1"},
		"queue, and the task is cancelled": {func(s *tasker.ScheduleSpec) { s.Overlap = tasker.OverlapQueue }, func(h *harness) {
			h.passes(time.Hour + time.Second)
			h.passes(time.Hour)
			h.Cancel(h.scheduledTasks()[0])
			h.Tick()
			h.Tick()
		}, "started*1 started*1"},
		"allow": {nil, func(h *harness) {
			h.passes(time.Hour + time.Second)
			h.passes(time.Hour)
		}, "started*1 started*1"},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := scheduled(t, tt.change)
			tt.do(h)
			h.wantFirings(tt.want)
		})
	}
}

func TestOverlapCancelWaitsForTheRunningTask(t *testing.T) {
	h, _ := scheduled(t, func(s *tasker.ScheduleSpec) { s.Overlap = tasker.OverlapCancel })
	h.passes(time.Hour + time.Second)
	first := h.scheduledTasks()[0]
	h.elapses(time.Hour)
	h.Must(h.DB.InTx(t.Context(), func(tx *postgres.Tx) error { // somebody works on the task
		h.Must(tx.LockTasks(t.Context(), []tasker.ID{first}))
		h.Tick()
		h.wantFirings("started*1")
		return nil
	}))
	h.Tick()
	h.wantFirings("started*1 started*1")
	h.WantState(first, tasker.TaskCancelled)
	h.WantState(h.scheduledTasks()[1], tasker.TaskStepsInProcess)
	got := h.History(first)
	check(t, strings.Contains(got, "cancel"), "the history is %s", got)
}

func TestOverlapCancelsAllOpenTasks(t *testing.T) {
	const many = 2*tasker.MaxCancelBatch + 5
	h, s := scheduled(t, func(s *tasker.ScheduleSpec) { s.CatchUp, s.CatchUpMax = tasker.CatchUpAll, many })
	h.elapses(many*time.Hour + time.Second)
	for h.Count(`SELECT count(*) FROM tasker.schedules WHERE fire_at <= now()`) > 0 {
		h.Tick()
	}
	_, err := h.Engine.UpdateSchedule(t.Context(), s.UUID, hourlySpec(func(s *tasker.ScheduleSpec) { s.Overlap = tasker.OverlapCancel }), 0, ann)
	h.Must(err)
	open := func() int { return h.Count(`SELECT count(*) FROM tasker.tasks WHERE state <> 'cancelled'`) }
	require(t, open() == many, "%d tasks are open", open())
	h.elapses(time.Hour)
	h.Must(h.DB.InTx(t.Context(), func(tx *postgres.Tx) error { // somebody works on one of them
		h.Must(tx.LockTasks(t.Context(), h.scheduledTasks()[many-1:]))
		for range 3 { // one takes as many as it has time for
			h.Tick()
		}
		return nil
	}))
	equal(t, "tasks are open", open(), 1)
	h.Tick()
	last := h.scheduledTasks()[many]
	h.WantState(last, tasker.TaskStepsInProcess)
	equal(t, "tasks are open", open(), 1)
}

func TestFixedDelayStartsAfterTheEnd(t *testing.T) {
	h, s := scheduled(t, func(s *tasker.ScheduleSpec) { s.Every, s.AfterEnd, s.Overlap = 0, 10*time.Minute, "" })
	h.passes(10*time.Minute + time.Second)
	h.wantFirings("started*1")
	h.passes(24 * time.Hour)
	h.wantFirings("started*1")
	d, err := h.Engine.Schedule(t.Context(), s.UUID, 3)
	h.Must(err)
	if d.State() != tasker.ScheduleWaiting || *d.AwaitsTask != h.scheduledTasks()[0] || len(d.Next) != 0 {
		t.Errorf("it is %s and awaits %v", d.State(), d.AwaitsTask)
	}
	h.Complete("report")
	h.Tick()
	d, err = h.Engine.Schedule(t.Context(), s.UUID, 3)
	h.Must(err)
	if rest := time.Until(*d.NextAt); d.State() != tasker.ScheduleActive || rest < 8*time.Minute || rest > 10*time.Minute || len(d.Next) != 1 {
		t.Errorf("it is %s, and next comes in %s", d.State(), rest)
	}
	h.passes(10 * time.Minute)
	h.wantFirings("started*1 started*1")
	h.Accepted(failure(h.ClaimOne("report"), false))
	h.passes(time.Hour)
	h.wantFirings("started*1 started*1") // a task in error has not ended
	h.Abandon(h.scheduledTasks()[1])
	h.Tick()
	fixture.RetiredTemplates(h, h.Admin())
	h.passes(10 * time.Minute)
	h.wantFirings("started*1 started*1 refused*1")
	d, err = h.Engine.Schedule(t.Context(), s.UUID, 3)
	h.Must(err)
	if d.NextAt == nil || d.State() != tasker.ScheduleActive {
		t.Errorf("after a refusal it is %s", d.State())
	}
}

func TestRefusedTaskIsRecordedAsAFiring(t *testing.T) {
	var told []tasker.Firing
	h, s := scheduled(t, nil)
	h.Engine = newEngine(h.DB, engine.Options{Hooks: enginetest.Hooks{Fired: func(list []tasker.Firing) { told = append(told, list...) }}})
	h.Template("other", enginetest.Step("report"))
	_, err := h.Engine.CreateSchedule(t.Context(), hourlySpec(func(s *tasker.ScheduleSpec) { s.Name, s.Template = "other", "other" }), ann)
	h.Must(err)
	h.Exec(`UPDATE tasker.task_templates SET retired_at = now(), retired_by = 'ann', retired_reason = 'old' WHERE name = 'nightly'`)
	h.passes(time.Hour + time.Second)
	got := h.firings()
	require(t, got == "refused*1 started*1" || got == "started*1 refused*1", "the firings are %s", got)
	d, err := h.Engine.Schedule(t.Context(), s.UUID, 1)
	h.Must(err)
	if f := d.Firings[0]; f.Outcome != tasker.FiringRefused || !strings.Contains(f.Reason, "accepts new tasks") || f.TaskUUID != nil {
		t.Errorf("the firing is %+v", f)
	}
	check(t, len(told) == 2, "it was told of %+v", told)
	list, _, err := h.Engine.Schedules(t.Context(), tasker.ScheduleFilter{Limit: 10})
	h.Must(err)
	check(t, len(list) == 2 && list[0].Refused && list[0].Failing == 1 && !list[1].Refused && list[1].Failing == 0,
		"the list is %+v", list)
	h.Exec(`UPDATE tasker.task_templates SET retired_at = NULL, retired_by = NULL, retired_reason = NULL`)
	h.passes(time.Hour)
	h.WantCount(3, `SELECT count(*) FROM tasker.schedule_firings WHERE outcome = 'started'`)
}

func TestFailingScheduleIsCounted(t *testing.T) {
	h, _ := scheduled(t, nil)
	failing := func() int {
		list, _, err := h.Engine.Schedules(t.Context(), tasker.ScheduleFilter{Namespace: h.Space, Name: "nightly", Limit: 1})
		h.Must(err)
		return list[0].Failing
	}
	for i := range 3 {
		h.passes(time.Hour + time.Second)
		equal(t, "failing before its end", failing(), i)
		h.Accepted(failure(h.ClaimOne("report"), false))
	}
	equal(t, "failing", failing(), 3)
	h.passes(time.Hour)
	h.Complete("report")
	equal(t, "failing", failing(), 0)
}

func TestSchedulePausesAndResumes(t *testing.T) {
	h, s := scheduled(t, nil)
	paused, err := h.Engine.PauseSchedule(t.Context(), s.UUID, nil, ann)
	h.Must(err)
	if paused.State() != tasker.SchedulePaused || paused.PausedBy != "ann" || paused.PausedReason != "because" || paused.FireAt != nil {
		t.Errorf("it is %+v", paused)
	}
	h.passes(3*time.Hour + time.Second)
	h.wantFirings("")
	resumed, err := h.Engine.ResumeSchedule(t.Context(), s.UUID, ann)
	h.Must(err)
	check(t, resumed.State() == tasker.ScheduleActive && resumed.PausedBy == "", "it is %+v", resumed)
	h.wantFirings("skipped*3")
	h.WantCode(errOf(h.Engine.ResumeSchedule(t.Context(), s.UUID, ann)), tasker.Conflict, "is not paused")
	until := time.Now().Add(90 * time.Minute)
	h.Must(errOf(h.Engine.PauseSchedule(t.Context(), s.UUID, &until, ann)))
	d, err := h.Engine.Schedule(t.Context(), s.UUID, 2)
	h.Must(err)
	check(t, len(d.Next) == 2 && !d.Next[0].Before(until), "paused until %s, the next are %v", until, d.Next)
	h.passes(time.Hour)
	h.wantFirings("skipped*3")
	h.passes(time.Hour)
	h.wantFirings("skipped*4 started*1")
	past := time.Now().Add(-time.Hour)
	h.WantCode(errOf(h.Engine.PauseSchedule(t.Context(), s.UUID, &past, ann)), tasker.Invalid, "must be in the future")
}

func TestScheduleUpdateKeepsPastInstants(t *testing.T) {
	h, s := scheduled(t, nil)
	h.elapses(time.Hour + time.Second)
	spec := hourlySpec(func(s *tasker.ScheduleSpec) { s.Every, s.Name = 2*time.Hour, "rarely" })
	updated, err := h.Engine.UpdateSchedule(t.Context(), s.UUID, spec, 1, ann)
	h.Must(err)
	h.wantFirings("started*1")
	if rest := time.Until(*updated.NextAt); updated.Revision != 2 || updated.Name != "rarely" || rest < 119*time.Minute || rest > 2*time.Hour {
		t.Errorf("it is %+v, and next comes in %s", updated, rest)
	}
	_, err = h.Engine.UpdateSchedule(t.Context(), s.UUID, spec, 1, ann)
	h.WantCode(err, tasker.Conflict, "has revision 2, not 1")
	h.passes(2 * time.Hour)
	h.wantFirings("started*1 started*1")
}

func TestUpdateFiresTheInstantInItsJitter(t *testing.T) {
	h, s := scheduled(t, func(s *tasker.ScheduleSpec) { s.Jitter = time.Hour })
	at := time.Now().Add(-time.Second).Truncate(time.Second)
	for schedule.Jitter(s.UUID, at, s.Jitter) < 10*time.Minute {
		at = at.Add(-time.Second)
	}
	h.Exec(`UPDATE tasker.schedules SET anchor = $1::timestamptz - interval '1 hour', next_at = $1, fire_at = $2`, at, at.Add(schedule.Jitter(s.UUID, at, s.Jitter)))
	h.Tick()
	h.wantFirings("")
	updated, err := h.Engine.UpdateSchedule(t.Context(), s.UUID, hourlySpec(func(s *tasker.ScheduleSpec) { s.Every = 2 * time.Hour }), 0, ann)
	h.Must(err)
	h.wantFirings("started*1")
	d, err := h.Engine.Schedule(t.Context(), s.UUID, 1)
	h.Must(err)
	if f := d.Firings[0]; !f.NominalAt.Equal(at) || f.LateMS != 0 || updated.NextAt.Before(time.Now()) {
		t.Errorf("the firing is %+v, and the next instant %s", f, updated.NextAt)
	}
}

func TestUpdateDuringAPauseSkipsItsInstants(t *testing.T) {
	h, s := scheduled(t, nil)
	h.Must(errOf(h.Engine.PauseSchedule(t.Context(), s.UUID, nil, ann)))
	h.elapses(3*time.Hour + time.Second)
	seconds := hourlySpec(func(s *tasker.ScheduleSpec) { s.Every = time.Second })
	updated, err := h.Engine.UpdateSchedule(t.Context(), s.UUID, seconds, 0, ann)
	h.Must(err)
	h.wantFirings("skipped*3")
	check(t, updated.State() == tasker.SchedulePaused && updated.FireAt == nil, "it is %+v", updated)
	h.elapses(300 * time.Hour) // more instants than one change passes: what it has done is kept
	_, err = h.Engine.UpdateSchedule(t.Context(), s.UUID, hourlySpec(nil), 0, ann)
	h.WantCode(err, tasker.Conflict, "try again in a moment")
	updated, err = h.Engine.UpdateSchedule(t.Context(), s.UUID, hourlySpec(nil), 0, ann)
	h.Must(err)
	n := h.Count(`SELECT sum(instants) FROM tasker.schedule_firings WHERE outcome = 'skipped' AND reason = 'paused'`)
	check(t, n >= 3+300*3600 && n <= 3+301*3600, "%d instants are in firings", n)
	check(t, !updated.NextAt.Before(time.Now()), "the next instant is %s", updated.NextAt)
}

func TestScheduleContinuesAfterTheClockIsSetBack(t *testing.T) {
	start := time.Now().Add(-10*time.Hour - time.Second).Truncate(time.Second)
	spec := func(s *tasker.ScheduleSpec) { s.StartAt = &start }
	h, s := scheduled(t, spec)
	h.passes(3 * time.Hour)
	h.wantFirings("missed*2 started*1")
	h.elapses(-2 * time.Hour)
	updated, err := h.Engine.UpdateSchedule(t.Context(), s.UUID, hourlySpec(spec), 0, ann)
	h.Must(err)
	rest := time.Until(*updated.NextAt)
	check(t, rest >= 2*time.Hour, "the next instant comes in %s", rest)
	h.passes(time.Hour)
	h.wantFirings("missed*2 started*1")
	h.passes(2 * time.Hour)
	h.wantFirings("missed*2 started*1 started*1")
	h.WantCount(0, `SELECT count(*) FROM tasker.deferred_work`)
}

func TestFixedDelayContinuesAfterTheClockIsSetBack(t *testing.T) {
	h, s := scheduled(t, func(s *tasker.ScheduleSpec) { s.Every, s.AfterEnd, s.Overlap = 0, 10*time.Minute, "" })
	h.passes(10*time.Minute + time.Second)
	h.elapses(-time.Hour)
	h.Complete("report")
	h.Tick()
	d, err := h.Engine.Schedule(t.Context(), s.UUID, 1)
	h.Must(err)
	fired := d.Firings[0].NominalAt
	check(t, d.NextAt.Sub(fired) == 10*time.Minute, "the instant after %s is %s", fired, d.NextAt)
}

func TestDeletedScheduleStops(t *testing.T) {
	h, s := scheduled(t, func(s *tasker.ScheduleSpec) { s.Overlap = tasker.OverlapQueue })
	h.passes(time.Hour + time.Second)
	h.passes(time.Hour)
	h.wantFirings("started*1 queued*1")
	h.Must(h.Engine.DeleteSchedule(t.Context(), s.UUID, ann))
	h.passes(5 * time.Hour)
	h.wantFirings("started*1 skipped*1")
	for _, err := range []error{
		h.Engine.DeleteSchedule(t.Context(), s.UUID, ann),
		errOf(h.Engine.TriggerSchedule(t.Context(), s.UUID, ann)),
		errOf(h.Engine.PauseSchedule(t.Context(), s.UUID, nil, ann)),
	} {
		h.WantCode(err, tasker.NotFound, "was deleted")
	}
	d, err := h.Engine.Schedule(t.Context(), s.UUID, 1)
	h.Must(err)
	check(t, d.State() == tasker.ScheduleDeleted && len(d.Next) == 0 && len(d.Firings) == 2, "it is %+v", d)
	h.Accepted(success(h.ClaimOne("report"), `1`)) // its task goes on
	h.Tick()
	_, err = h.Engine.CreateSchedule(t.Context(), hourlySpec(nil), ann) // the name is free
	h.Must(err)
	h.Exec(`UPDATE tasker.schedule_firings SET decided_at = now() - interval '31 days'`)
	h.Exec(`UPDATE tasker.schedules SET deleted_at = now() - interval '31 days' WHERE deleted_at IS NOT NULL`)
	more, err := h.DB.PruneFirings(t.Context(), 30*24*time.Hour, 100)
	h.Must(err)
	n := h.Count(`SELECT count(*) FROM tasker.schedules`)
	check(t, n == 1 && !more, "%d schedules are left", n)
}

func TestScheduleCanBeTriggered(t *testing.T) {
	h, s := scheduled(t, func(s *tasker.ScheduleSpec) { s.Overlap = tasker.OverlapSkip })
	h.Must(errOf(h.Engine.PauseSchedule(t.Context(), s.UUID, nil, ann)))
	f, err := h.Engine.TriggerSchedule(t.Context(), s.UUID, ann)
	h.Must(err)
	check(t, f.Kind == tasker.ManualFiring && f.TaskUUID != nil && f.Actor == "ann", "the firing is %+v", f)
	h.WantState(*f.TaskUUID, tasker.TaskStepsInProcess)
	h.wantFirings("started*1")
	keyed := engine.ScheduleChange{Actor: "ann", RequestKey: "k"}
	first, err := h.Engine.TriggerSchedule(t.Context(), s.UUID, keyed)
	h.Must(err)
	h.Must(errOf(h.Engine.TriggerSchedule(t.Context(), s.UUID, ann)))
	again, err := h.Engine.TriggerSchedule(t.Context(), s.UUID, keyed)
	h.Must(err)
	check(t, *again.TaskUUID == *first.TaskUUID && again.NominalAt.Equal(first.NominalAt),
		"the same request made %+v and then %+v", first, again)
	h.wantFirings("started*1 started*1 started*1")
	h.WantCode(errOf(h.Engine.TriggerSchedule(t.Context(), s.UUID, engine.ScheduleChange{Actor: "ann", Reason: "other", RequestKey: "k"})), tasker.Conflict, "different request")
	h.Exec(`DELETE FROM tasker.schedule_firings WHERE task_uuid = $1 OR nominal_at > $2`, *first.TaskUUID, first.NominalAt)
	h.WantCode(errOf(h.Engine.TriggerSchedule(t.Context(), s.UUID, keyed)), tasker.Conflict, "has since been removed")
	h.Exec(`UPDATE tasker.tasks SET schedule_uuid = NULL WHERE NOT EXISTS (SELECT FROM tasker.schedule_firings g WHERE g.task_uuid = tasks.task_uuid)`)
	fixture.RetiredTemplates(h, h.Admin())
	h.WantCode(errOf(h.Engine.TriggerSchedule(t.Context(), s.UUID, ann)), tasker.NotFound, "accepts new tasks")
}

func TestSchedulesPerNamespaceAreBounded(t *testing.T) {
	h, _ := scheduled(t, func(*tasker.ScheduleSpec) {})
	h.Exec(`INSERT INTO tasker.schedules (schedule_uuid, namespace, name, template_name, every_s, overlap, catch_up, start_within_s, anchor, created_by)
		SELECT gen_random_uuid(), $1, 'n' || i, 'nightly', 60, 'skip', 'last', 60, now(), 'ann' FROM generate_series(2, $2) i`, h.Space, tasker.MaxSchedulesOfNamespace)
	h.WantCode(errOf(h.Engine.CreateSchedule(t.Context(), hourlySpec(func(s *tasker.ScheduleSpec) { s.Name = "more" }), ann)), tasker.Conflict, "which is the limit")
	h.Exec(`UPDATE tasker.schedules SET deleted_at = now() WHERE name = 'n2'`)
	h.Must(errOf(h.Engine.CreateSchedule(t.Context(), hourlySpec(func(s *tasker.ScheduleSpec) { s.Name = "more" }), ann)))
}

func TestBackfillCreatesMissedTasks(t *testing.T) {
	start := time.Now().Add(-100 * time.Hour).UTC().Truncate(time.Hour)
	h, s := scheduled(t, func(s *tasker.ScheduleSpec) { s.StartAt, s.CatchUp = &start, tasker.CatchUpNone })
	h.passes(2*time.Hour + time.Second) // the newest of them on time, unless it is too late
	made := h.Count(`SELECT count(*) FROM tasker.schedule_firings WHERE outcome = 'started'`)
	start = start.Add(-2*time.Hour - time.Second)
	b := engine.Backfill{From: start.Add(90 * time.Hour), To: time.Now().Add(5 * time.Hour), DryRun: true}
	look, err := h.Engine.BackfillSchedule(t.Context(), s.UUID, b, ann)
	h.Must(err)
	count := func(list []tasker.BackfillInstant) (starts int) {
		for _, x := range list {
			if x.Starts {
				starts++
			} else if x.Reason == "" {
				t.Errorf("%s has no reason", x.NominalAt)
			}
		}
		return starts
	}
	h.WantCount(made, `SELECT count(*) FROM tasker.tasks`)
	want := count(look)
	check(t, want >= 10 && want+made+5 >= len(look)-1,
		"%d of %d instants would have a task: %+v", want, len(look), look)
	b.DryRun = false
	did, err := h.Engine.BackfillSchedule(t.Context(), s.UUID, b, ann)
	h.Must(err)
	n := h.Count(`SELECT count(*) FROM tasker.schedule_firings WHERE kind = 'backfill' AND outcome = 'started'`)
	check(t, n == want && count(did) == want, "%d tasks, and it says %d, want %d", n, count(did), want)
	again, err := h.Engine.BackfillSchedule(t.Context(), s.UUID, b, ann)
	h.Must(err)
	if count(again) != 0 || again[0].TaskUUID == nil || again[0].Reason != "already has a task" {
		t.Errorf("again it is %+v", again[0])
	}
	b.From = b.To.Add(-1000 * time.Hour)
	s.StartAt = nil
	_, err = h.Engine.BackfillSchedule(t.Context(), s.UUID, engine.Backfill{From: b.To, To: b.From}, ann)
	h.WantCode(err, tasker.Invalid, "must not be before from")
	every := hourlySpec(func(s *tasker.ScheduleSpec) { s.Name, s.Cron, s.Every = "seconds", "* * * * * *", 0 })
	seconds, err := h.Engine.CreateSchedule(t.Context(), every, ann)
	h.Must(err)
	_, err = h.Engine.BackfillSchedule(t.Context(), seconds.UUID, b, ann)
	h.WantCode(err, tasker.Invalid, "more than 500 firing times")
	delay := hourlySpec(func(s *tasker.ScheduleSpec) { s.Name, s.AfterEnd, s.Every, s.Overlap = "delay", time.Hour, 0, "" })
	follows, err := h.Engine.CreateSchedule(t.Context(), delay, ann)
	h.Must(err)
	_, err = h.Engine.BackfillSchedule(t.Context(), follows.UUID, b, ann)
	h.WantCode(err, tasker.Invalid, "has no past firing times")
}

func TestBackfillLeavesPendingInstants(t *testing.T) {
	h, s := scheduled(t, func(s *tasker.ScheduleSpec) {
		s.Overlap, s.CatchUp, s.CatchUpMax = tasker.OverlapQueue, tasker.CatchUpAll, 10
	})
	backfill := func(since time.Duration) (said []string) {
		h.Helper()
		list, err := h.Engine.BackfillSchedule(t.Context(), s.UUID, engine.Backfill{From: time.Now().Add(-since), To: time.Now()}, ann)
		h.Must(err)
		for _, x := range list {
			said = append(said, fmt.Sprintf("%t %s", x.Starts, x.Reason))
		}
		return said
	}
	h.passes(time.Hour + time.Second)
	h.passes(time.Hour)
	h.wantFirings("started*1 queued*1")
	if said := backfill(90 * time.Minute); !slices.Equal(said, []string{"false already has a task", "false waiting for the previous task"}) {
		t.Errorf("the backfill says %q", said)
	}
	h.Complete("report")
	h.Tick()
	h.Tick()
	h.wantFirings("started*1 started*1")
	h.Must(errOf(h.Engine.PauseSchedule(t.Context(), s.UUID, new(time.Now().Add(90*time.Minute)), ann)))
	h.elapses(2 * time.Hour)
	want := []string{"false already has a task", "true ", "false will be fired by the schedule"}
	if said := backfill(150 * time.Minute); !slices.Equal(said, want) {
		t.Errorf("after the pause the backfill says %q, want %q", said, want)
	}
}

func TestInvalidSchedulesAreRejected(t *testing.T) {
	h, _ := scheduled(t, nil)
	past := time.Now().Add(-time.Hour)
	for says, change := range map[string]func(*tasker.ScheduleSpec){
		"name: is missing":                        func(s *tasker.ScheduleSpec) { s.Name = "" },
		"template: ":                              func(s *tasker.ScheduleSpec) { s.Template = "none" },
		"no version 9":                            func(s *tasker.ScheduleSpec) { s.Version = "9.0.0" },
		"context: must be a JSON":                 func(s *tasker.ScheduleSpec) { s.Context = json.RawMessage(`[]`) },
		"overlap: must be":                        func(s *tasker.ScheduleSpec) { s.Overlap = "wait" },
		"catch_up: must be":                       func(s *tasker.ScheduleSpec) { s.CatchUp = "some" },
		"catch_up_max: must be from":              func(s *tasker.ScheduleSpec) { s.CatchUp = tasker.CatchUpAll },
		"catch_up_max: is only":                   func(s *tasker.ScheduleSpec) { s.CatchUpMax = 3 },
		"start_within_seconds":                    func(s *tasker.ScheduleSpec) { s.StartWithin = 48 * time.Hour },
		"overlap and catch_up cannot":             func(s *tasker.ScheduleSpec) { s.Every, s.AfterEnd = 0, time.Hour },
		"the schedule has no future firing times": func(s *tasker.ScheduleSpec) { s.EndAt = &past },
		"never occurs":                            func(s *tasker.ScheduleSpec) { s.Every, s.Cron = 0, "0 0 31 2 *" },
		"priority: must be":                       func(s *tasker.ScheduleSpec) { s.Priority = 5000 },
	} {
		spec := hourlySpec(func(s *tasker.ScheduleSpec) { s.Name = "other"; change(s) })
		_, err := h.Engine.CreateSchedule(t.Context(), spec, ann)
		h.WantCode(err, tasker.Invalid, strings.Replace(says, "no version 9", "9.0.0", 1))
	}
	_, err := h.Engine.CreateSchedule(t.Context(), hourlySpec(nil), ann)
	h.WantCode(err, tasker.Conflict, "already has a schedule nightly")
	_, err = h.Engine.CreateSchedule(t.Context(), hourlySpec(nil), engine.ScheduleChange{})
	h.WantCode(err, tasker.Invalid, "by: is missing")
	h.WantCount(1, `SELECT count(*) FROM tasker.schedules`)
}

func TestEachInstantFiresExactlyOnce(t *testing.T) {
	const schedules, servers, hours = 40, 4, 6
	h, _ := scheduled(t, func(s *tasker.ScheduleSpec) { s.CatchUp, s.CatchUpMax = tasker.CatchUpAll, 1000 })
	for i := 1; i < schedules; i++ {
		_, err := h.Engine.CreateSchedule(t.Context(), hourlySpec(func(s *tasker.ScheduleSpec) {
			s.Name = fmt.Sprintf("nightly-%d", i)
			s.Every = time.Duration(10+i) * time.Minute
			s.Overlap = tasker.Overlaps()[i%4]
			s.CatchUp, s.CatchUpMax = tasker.CatchUpAll, 1000
			s.Jitter = time.Duration(i%3) * time.Minute
		}), ann)
		h.Must(err)
	}
	for range hours {
		h.elapses(time.Hour)
		var all sync.WaitGroup
		for n := range servers {
			all.Go(func() {
				// Each server is cut off at another place of its work.
				ctx, stop := context.WithTimeout(t.Context(), time.Duration(5+20*n)*time.Millisecond)
				defer stop()
				e := newEngine(enginetest.Open(t, h.URL, postgres.Options{}), engine.Options{})
				if _, err := e.Tick(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
					t.Errorf("a tick: %v", err)
				}
			})
		}
		all.Wait()
		h.Tick()
	}
	for h.Count(`SELECT count(*) FROM tasker.schedules WHERE fire_at <= now()`) > 0 {
		h.Tick()
	}
	h.wantCovered()
	if n := h.Count(`SELECT count(*) FROM tasker.schedule_firings WHERE outcome = 'started'`); n < schedules*hours/2 {
		t.Errorf("%d tasks were made", n)
	}
	if n := h.Count(`SELECT count(*) FROM tasker.tasks t FULL JOIN tasker.schedule_firings g ON g.task_uuid = t.task_uuid
		WHERE g.outcome = 'started' AND t.task_uuid IS NULL OR g.task_uuid IS NULL AND t.task_uuid IS NOT NULL`); n != 0 {
		t.Errorf("%d tasks without a firing, or firings without a task", n)
	}
}

// wantCovered fails the test unless the firings of the clock have each instant of each schedule,
// from the first to the one that is next, once.
func (h *harness) wantCovered() {
	h.Helper()
	list, _, err := h.Engine.Schedules(h.Context(), tasker.ScheduleFilter{Limit: 1000})
	h.Must(err)
	for _, s := range list {
		rule, faults := schedule.Compile(s.ScheduleRule, s.Anchor)
		if len(faults) > 0 {
			h.Fatal(faults)
		}
		firings, _, err := h.DB.Firings(h.Context(), tasker.FiringFilter{Schedule: s.UUID, Limit: 10_000})
		h.Must(err)
		at, _ := rule.Next(s.Anchor)
		for _, f := range slices.Backward(firings) {
			require(h, f.NominalAt.Equal(at), "schedule %s: a firing begins at %s, want %s", s.Name, f.NominalAt, at)
			for n := int64(1); ; n++ {
				last := at
				at, _ = rule.Next(at)
				if last.Equal(f.NominalUntil) {
					require(h, n == f.Instants,
						"schedule %s: a firing has %d instants, want %d", s.Name, f.Instants, n)
					break
				}
				require(h, !last.After(f.NominalUntil),
					"schedule %s: no instant is at the end of a firing, %s", s.Name, f.NominalUntil)
			}
		}
		check(h, s.NextAt.Equal(at), "schedule %s: the next instant is %s, want %s", s.Name, s.NextAt, at)
	}
}
