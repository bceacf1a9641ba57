package taskertest

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"tasker.example/tasker"
	"tasker.example/tasker/embedded"
)

// Engine returns the engine for the code of a program that embeds it: transactions, schedules, holds
// and everything else. The test runs its background work, so do not call its Run and Close.
func (w *Workflow) Engine() *embedded.Engine { return w.program }

// Pool returns a pool of the database of the test. Its role can create tables. The functions now() and
// clock_timestamp() return the real time there.
func (w *Workflow) Pool() *pgxpool.Pool { return w.pool }

// Task returns a task that was created with [Workflow.Engine].
func (w *Workflow) Task(id tasker.ID) *Task {
	w.t.Helper()
	t := &Task{UUID: id, w: w}
	t.Get()
	return t
}

// maxTasks limits the tasks that Tasks returns.
const maxTasks = 1000

// Tasks returns the tasks of a template, such as those of a schedule, oldest first. An empty name
// means the first template.
func (w *Workflow) Tasks(template string) []*Task {
	w.t.Helper()
	f := tasker.TaskFilter{Namespace: w.templates[0].Namespace, Name: template, Limit: maxTasks}
	if template == "" {
		f.Name = w.templates[0].Name
	}
	found, more, err := w.db.Tasks(w.t.Context(), f)
	w.must(err)
	if more {
		w.t.Fatalf("template %s has more than %d tasks", f.Name, maxTasks)
	}
	var list []*Task
	for _, t := range slices.Backward(found) {
		list = append(list, &Task{UUID: t.UUID, w: w})
	}
	return list
}

// ChangeVersion moves the open task to another version of its template as an operator. The test
// fails if the change is refused.
func (t *Task) ChangeVersion(to string) tasker.VersionChange {
	t.w.t.Helper()
	change, err := t.w.engine.ChangeVersion(t.w.t.Context(), t.UUID, tasker.VersionRequest{To: to, Actor: actor, Reason: "changed by the test"})
	if err != nil {
		t.w.t.Fatalf("change to version %s: %v %v\n%s", to, err, change.Refusals, t)
	}
	return change
}

// heldPass advances the holds once and reports whether that changed one of them.
func (w *Workflow) heldPass() (changed bool) {
	w.t.Helper()
	before := w.openHolds()
	if len(before) == 0 {
		return false
	}
	commits := w.commits.Load()
	_, err := w.holds.AdvanceHolds(w.t.Context())
	w.must(err)
	_, err = w.holds.ParkSteps(w.t.Context())
	w.must(err)
	w.commits.Store(commits) // a pass commits in any case
	return !slices.EqualFunc(before, w.openHolds(), func(a, b tasker.Hold) bool {
		return a.State == b.State && a.Blocks == b.Blocks && a.Wave == b.Wave && a.Probes == b.Probes &&
			a.FailedProbes == b.FailedProbes && a.Released == b.Released && a.InFlight == b.InFlight && a.EndsAt.Equal(b.EndsAt)
	})
}

func (w *Workflow) openHolds() []tasker.Hold {
	w.t.Helper()
	list, err := w.db.OpenHolds(w.t.Context())
	w.must(err)
	return list
}

// releaseInterval is the interval of clock stops while a released step has no outcome.
const releaseInterval = time.Minute

// nextHeld returns the time until a hold must be advanced, but no more than within.
func (w *Workflow) nextHeld(within time.Duration) time.Duration {
	w.t.Helper()
	holds := w.openHolds()
	if len(holds) == 0 {
		return within
	}
	now := w.Now()
	for _, h := range holds {
		if h.InFlight > 0 {
			within = min(within, releaseInterval)
		}
		for _, at := range []*time.Time{&h.EndsAt, h.NextProbeAt} {
			if at != nil && at.After(now) {
				within = min(within, at.Sub(now)+settled)
			}
		}
	}
	return within
}
