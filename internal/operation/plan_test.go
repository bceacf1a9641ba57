package operation_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/operation"
	"tasker.example/tasker/internal/pgtest"
)

// What is selected: by filter, ids, and the worker of the failure; of each investigation
// the step that has failed.
func TestSelections(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	tasks := h.stuck(4)
	h.Template("other", enginetest.Once(enginetest.Step("other")))
	other := h.Create("other")
	h.work(1, fails("another"))
	h.Exec(`INSERT INTO tasker.workers (worker_uuid, name, namespaces, handlers, version, max_concurrency, heartbeat_interval, lease)
		VALUES ($1, 'new', '{shop}', '{run}', '1.6.0', 1, '10 min', '1 hour')`, tasker.NewID())
	h.Exec(`UPDATE tasker.workflow_steps SET worker_uuid = (SELECT worker_uuid FROM tasker.workers WHERE version = '1.6.0'), last_failure_at = now() - interval '1 hour'
		WHERE task_uuid = $1 AND state = 'error'`, tasks[0])
	entries := make([]tasker.ID, len(tasks))
	for i, task := range tasks {
		entries[i] = h.Entry(task).UUID
	}
	h.FindCases()
	var key tasker.ID
	h.Must(h.Admin().QueryRow(t.Context(), `SELECT f.case_id FROM tasker.tasks_dlq d JOIN tasker.case_members m USING (dlq_entry_uuid) JOIN tasker.case_fingerprints f USING (fingerprint) WHERE d.task_uuid = $1`, other).Scan(&key))
	lately := time.Now().Add(-time.Minute)
	in := func(f tasker.InvestigationFilter) tasker.OperationSelection {
		return tasker.OperationSelection{Filter: f}
	}
	for _, tt := range []struct {
		name  string
		s     tasker.OperationSelection
		limit int
		want  []tasker.ID
	}{
		{"namespace", in(tasker.InvestigationFilter{Namespace: "shop"}), 0, append(slices.Clone(tasks), other)},
		{"template", in(tasker.InvestigationFilter{Name: "order"}), 0, tasks},
		{"case", in(tasker.InvestigationFilter{Case: &key}), 0, []tasker.ID{other}},
		{"text", in(tasker.InvestigationFilter{Text: "ANOTHER"}), 0, []tasker.ID{other}},
		{"investigations", tasker.OperationSelection{IDs: entries[:2]}, 0, tasks[:2]},
		{"tasks, and some twice", tasker.OperationSelection{IDs: []tasker.ID{tasks[0], entries[0], tasks[1], tasks[1], tasker.NewID()}}, 0, tasks[:2]},
		{"ids within a filter", tasker.OperationSelection{IDs: []tasker.ID{tasks[0], other}, Filter: tasker.InvestigationFilter{Name: "other"}}, 0, []tasker.ID{other}},
		{"version", tasker.OperationSelection{WorkerVersion: "1.6.0"}, 0, tasks[:1]},
		{"version and time", tasker.OperationSelection{WorkerVersion: "1.5.0", FailedSince: &lately}, 0, append(slices.Clone(tasks[1:]), other)},
		{"the most urgent", in(tasker.InvestigationFilter{Name: "order"}), 3, tasks[:3]},
	} {
		p := plan()
		p.Selection, p.Limit = tt.s, tt.limit
		o := h.planned(p)
		items, _, err := h.DB.OperationItems(t.Context(), o.UUID, tasker.OperationItemFilter{Limit: 100})
		h.Must(err)
		var got []tasker.ID
		for i, item := range items {
			got = append(got, item.TaskUUID)
			if item.Ordinal != i+1 || item.StepUUID == nil || item.EntryUUID != h.Entry(item.TaskUUID).UUID {
				t.Errorf("%s: item %+v", tt.name, item)
			}
		}
		slices.SortFunc(tt.want, func(a, b tasker.ID) int { return strings.Compare(a.String(), b.String()) })
		if tt.limit > 0 {
			tt.want = got[:min(len(got), tt.limit)] // they are equally urgent
		}
		if !slices.Equal(got, tt.want) || o.Items != len(got) || len(got) == 0 || o.Capped != (tt.limit > 0) {
			t.Errorf("%s: %v (capped %t), want %v", tt.name, got, o.Capped, tt.want)
		}
		_, err = h.ops.Abort(t.Context(), o.UUID, "ann")
		h.Must(err)
	}
}

// What the caller may not operate on is neither selected nor counted, nor seen.
func TestOtherNamespacesAreNotSelected(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.stuck(2)
	ctx := access.WithScope(t.Context(), access.NamespaceScope("attic"))
	p := plan()
	p.Selection = tasker.OperationSelection{Filter: tasker.InvestigationFilter{Name: "order"}}
	_, _, err := h.ops.Plan(ctx, p)
	h.WantCode(err, tasker.NotFound, "no open investigation selected that you may operate on")
	o := h.planned(p)
	_, err = h.DB.Operation(ctx, o.UUID)
	h.WantCode(err, tasker.NotFound)
	list, _, err := h.DB.Operations(ctx, tasker.OperationFilter{Limit: 10})
	h.Must(err)
	if len(list) != 0 {
		t.Errorf("another caller sees %+v", list)
	}
	list, _, err = h.DB.Operations(access.WithScope(t.Context(), access.NamespaceScope("shop")), tasker.OperationFilter{Limit: 10, State: tasker.OperationPlanned})
	h.Must(err)
	if len(list) != 1 {
		t.Errorf("a caller of the namespace sees %d operations", len(list))
	}
	for namespace, want := range map[string]int{"shop": 1, "attic": 0} {
		list, _, err = h.DB.Operations(t.Context(), tasker.OperationFilter{Limit: 10, Namespace: namespace})
		h.Must(err)
		if len(list) != want {
			t.Errorf("%d operations have items of namespace %s, want %d", len(list), namespace, want)
		}
	}
}

func TestPlansThatAreRefused(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.stuck(1)
	for words, change := range map[string]func(*tasker.OperationPlan){
		"act.type":                     func(p *tasker.OperationPlan) { p.Act = "requeue" },
		"select: is empty":             func(p *tasker.OperationPlan) { p.Selection = tasker.OperationSelection{} },
		"reason: is missing":           func(p *tasker.OperationPlan) { p.Reason = " " },
		"reason: has 20001":            func(p *tasker.OperationPlan) { p.Reason = strings.Repeat("a", 20_001) },
		"planned_by: contains NUL":     func(p *tasker.OperationPlan) { p.Actor = "a\x00" },
		"waves: must be at most 20":    func(p *tasker.OperationPlan) { p.Waves = make([]int, 21) },
		"waves: must":                  func(p *tasker.OperationPlan) { p.Waves = []int{0} },
		"rate_per_minute: must be":     func(p *tasker.OperationPlan) { p.RatePerMinute = 60_001 },
		"guards.worker_at_least: must": func(p *tasker.OperationPlan) { p.Guards.WorkerAtLeast = "new" },
		"guards.worker_at_least: is only allowed": func(p *tasker.OperationPlan) {
			p.Act, p.Guards.WorkerAtLeast = tasker.ActResolve, "1.6.0"
		},
		"guards.tolerate: must be":               func(p *tasker.OperationPlan) { p.Guards.Tolerate = &tasker.FailureTolerance{Items: -1} },
		"guards.wave_timeout_seconds:":           func(p *tasker.OperationPlan) { p.Guards.WaveTimeout = time.Millisecond },
		"limit: must be from 1 to 100000":        func(p *tasker.OperationPlan) { p.Limit = -1 },
		"is only allowed with complete_manually": func(p *tasker.OperationPlan) { p.Result = json.RawMessage(`1`) },
		"select.ids: has 0 ids":                  func(p *tasker.OperationPlan) { p.Selection.IDs = []tasker.ID{} },
		"Idempotency-Key":                        func(p *tasker.OperationPlan) { p.RequestKey = strings.Repeat("k", 256) },
		"completion_data.result":                 func(p *tasker.OperationPlan) { p.Act = tasker.ActComplete },
	} {
		p := plan()
		change(&p)
		_, _, err := h.ops.Plan(t.Context(), p)
		h.WantCode(err, tasker.Invalid, words)
	}
	p := plan()
	p.Selection.Filter.Name = "nothing"
	_, _, err := h.ops.Plan(t.Context(), p)
	h.WantCode(err, tasker.NotFound)
	if n := h.Count(`SELECT count(*) FROM tasker.operations`) + h.Count(`SELECT count(*) FROM tasker.operation_items`); n != 0 {
		t.Errorf("plans that were refused have left %d rows", n)
	}
}

// One namespace cannot use up the operations of all.
func TestOperationsAreBounded(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	open := func(n int, namespaces string) {
		h.Exec(`INSERT INTO tasker.operations (operation_uuid, request_key, digest, act, selection, planned_by, reason, namespaces, state, waves, stop_on_new_cause, wave_timeout, expires_at)
			SELECT gen_random_uuid(), gen_random_uuid(), '', 'reset_for_retry', '{}', 'ann', 'r', $2, 'planned', '{}', true, '1 min', now() + interval '1 hour' FROM generate_series(1, $1::int) n`, n, namespaces)
	}
	h.stuck(2)
	shop := plan()
	shop.Limit, shop.SkipOverlap = 1, true
	o := h.planned(shop)
	open(tasker.MaxOpenOperationsPerNamespace-1, "{shop}")
	all := shop
	all.Limit, all.Selection = 10, tasker.OperationSelection{Filter: tasker.InvestigationFilter{Name: "order"}}
	for _, p := range []tasker.OperationPlan{shop, all} { // what is selected is in one namespace
		_, _, err := h.ops.Plan(t.Context(), p)
		h.WantCode(err, tasker.Conflict, "50 operations are open in namespace shop", "operation list --namespace shop")
	}
	_, err := h.ops.Abort(t.Context(), o.UUID, "ann")
	h.Must(err)
	h.planned(shop)

	h.Space = "attic"
	h.Template("order", enginetest.Once(enginetest.Step("charge")))
	h.worker = h.RegisterWorker("run")
	h.stuck(2)
	attic := shop
	attic.Selection.Filter.Namespace = "attic"
	h.planned(attic)
	if o := h.planned(all); len(o.Namespaces) != 2 { // counts for none of them
		t.Errorf("an operation on all is on %v", o.Namespaces)
	}
	open(tasker.MaxOpenOperations-tasker.MaxOpenOperationsPerNamespace-2, "{other}")
	_, _, err = h.ops.Plan(t.Context(), attic)
	h.WantCode(err, tasker.Conflict, "the limit of 100 open operations")
}

// The same request makes one operation, also when it is sent twice at once; another one
// under its key is refused.
func TestAPlanIsMadeOnce(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.stuck(3)
	p := plan()
	p.RequestKey = "psp-back-1"
	var wg sync.WaitGroup
	var mu sync.Mutex
	made, seen := 0, map[tasker.ID]bool{}
	for range 8 {
		wg.Go(func() {
			o, is, err := h.ops.Plan(t.Context(), p)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			if seen[o.UUID] = true; is {
				made++
			}
		})
	}
	wg.Wait()
	if made != 1 || len(seen) != 1 {
		t.Errorf("made %d operations, told of %d", made, len(seen))
	}
	p.Reason = "another"
	_, _, err := h.ops.Plan(t.Context(), p)
	h.WantCode(err, tasker.Conflict, `"psp-back-1" was used for a different request`)
}

// Of operators that plan at the same moment each step has one; the others are told whose it is.
func TestTwoOperatorsConflict(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	tasks := h.stuck(6)
	first := plan()
	first.Selection = tasker.OperationSelection{IDs: tasks[:4]}
	one := h.planned(first)
	second := plan()
	second.Actor = "bob"
	_, _, err := h.ops.Plan(t.Context(), second)
	h.WantCode(err, tasker.Conflict, one.UUID.String(), "planned by ann", "includes 4 of the selected steps", "--skip-overlap")
	second.SkipOverlap = true
	two := h.planned(second)
	if two.Items != 2 || len(two.Overlapping) != 1 || two.Overlapping[0] != (tasker.OperationOverlap{OperationUUID: one.UUID, PlannedBy: "ann", Items: 4}) {
		t.Errorf("the second has %d items, overlaps %+v", two.Items, two.Overlapping)
	}
	_, _, err = h.ops.Plan(t.Context(), second) // nothing is left
	h.WantCode(err, tasker.Conflict)
	_, err = h.ops.Abort(t.Context(), one.UUID, "ann")
	h.Must(err)
	_, err = h.ops.Abort(t.Context(), two.UUID, "bob")
	h.Must(err)
	for round := range 10 {
		var wg sync.WaitGroup
		won := make(chan tasker.Operation, 4)
		for range 4 {
			wg.Go(func() {
				o, _, err := operation.New(h.DB, h.Engine, h.DLQ, operation.Options{}).Plan(t.Context(), plan())
				switch tasker.CodeOf(err) {
				case "":
					won <- o
				case tasker.Conflict:
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if len(won) != 1 {
			t.Fatalf("round %d: %d operators have won", round, len(won))
		}
		_, err = h.ops.Abort(t.Context(), (<-won).UUID, "ann")
		h.Must(err)
	}
}

func TestAPlanThatIsNotStartedExpires(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.stuck(2)
	o := h.planned(plan())
	h.Exec(`UPDATE tasker.operations SET expires_at = now()`)
	_, err := h.ops.Start(t.Context(), o.UUID, o.PlanDigest, "ann")
	h.WantCode(err, tasker.Conflict, "expired at")
	h.release()
	o = h.wantCounts(o, tasker.OperationAborted, counts{tasker.ItemAborted: 2})
	if o.SettledAt == nil {
		t.Error("it has not come to its end")
	}
	h.planned(plan()) // the steps are free
	_, err = h.ops.Start(t.Context(), o.UUID, o.PlanDigest, "ann")
	h.WantCode(err, tasker.Conflict, "is already aborted")
}

// The verbs may be repeated, and are refused where they make no sense.
func TestVerbs(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.stuck(3)
	o := h.planned(plan())
	ctx := t.Context()
	_, err := h.ops.Start(ctx, o.UUID, "sha256:another", "ann")
	h.WantCode(err, tasker.Conflict, "does not have digest")
	_, err = h.ops.Pause(ctx, o.UUID, "ann")
	h.WantCode(err, tasker.Conflict, "is planned")
	_, err = h.ops.Resume(ctx, o.UUID, "ann", tasker.ResumeOptions{})
	h.WantCode(err, tasker.Conflict, "is planned")
	_, err = h.ops.Start(ctx, tasker.NewID(), "", "ann")
	h.WantCode(err, tasker.NotFound)
	_, err = h.ops.Pause(ctx, o.UUID, "")
	h.WantCode(err, tasker.Invalid, "actor")
	for range 2 {
		_, err = h.ops.Start(ctx, o.UUID, o.PlanDigest, "ann")
		h.Must(err)
	}
	for range 2 {
		p, err := h.ops.Pause(ctx, o.UUID, "bob")
		h.Must(err)
		if p.State != tasker.OperationPaused || p.Pause == nil || p.Pause.For != tasker.PausedByOperator || p.Pause.By != "bob" {
			t.Errorf("paused: %+v", p.Pause)
		}
	}
	h.release()
	h.wantCounts(o, tasker.OperationPaused, counts{tasker.ItemPlanned: 3})
	for range 2 {
		_, err = h.ops.Resume(ctx, o.UUID, "bob", tasker.ResumeOptions{})
		h.Must(err)
	}
	h.release()
	h.wantCounts(o, tasker.OperationRunning, counts{tasker.ItemReleased: 3})
	h.work(1, succeeds)
	for range 2 {
		_, err = h.ops.Abort(ctx, o.UUID, "bob")
		h.Must(err)
	}
	_, err = h.ops.Resume(ctx, o.UUID, "bob", tasker.ResumeOptions{})
	h.WantCode(err, tasker.Conflict, "already aborted")
	h.look() // what is released is looked at to its end
	h.wantCounts(o, tasker.OperationAborted, counts{tasker.ItemVerified: 1, tasker.ItemReleased: 2})
	h.work(9, succeeds)
	h.look()
	if o = h.wantCounts(o, tasker.OperationAborted, counts{tasker.ItemVerified: 3}); o.SettledAt == nil {
		t.Error("it has not come to its end")
	}
	if n := h.Count(`SELECT count(*) FROM tasker.audit_events WHERE action IN ('operation.paused', 'operation.resumed', 'operation.aborted', 'operation.started') AND subject = $1`, o.UUID.String()); n != 4 {
		t.Errorf("%d lines in the audit log, want one for each verb", n)
	}
}

// A dry run does the act and leaves every table as it was. It tells what would be skipped, and
// what others hold.
func TestADryRunChangesNothing(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	tasks := h.stuck(450)
	p := plan()
	p.Act = tasker.ActResolve
	o := h.planned(p)
	h.Must(h.Engine.CancelTask(t.Context(), tasks[3], "bob", "gone"))
	h.act(tasks[7], tasker.ResetForRetry)
	h.Exec(`UPDATE tasker.workflow_steps s SET fence = i.expected_fence FROM tasker.operation_items i WHERE i.step_uuid = s.step_uuid AND i.task_uuid = $1`, tasks[7])
	conn := pgtest.Admin(t, h.URL)
	busy, err := conn.Begin(t.Context())
	h.Must(err)
	_, err = busy.Exec(t.Context(), `SELECT FROM tasker.tasks WHERE task_uuid = $1 FOR UPDATE`, tasks[9])
	h.Must(err)
	before := h.Contents()
	r := h.dryRun(o, 10_000)
	if h.Contents() != before {
		t.Error("the dry run has changed the database")
	}
	if r.LookedAt != 450 || r.WouldRelease != 447 || r.Busy != 1 || r.Next != nil || r.Enqueues["ship"] != 447 || len(r.Enqueues) != 1 {
		t.Errorf("it tells %+v", r)
	}
	if len(r.Refused) != 1 || r.Refused[0].Outcome != "changed" || r.Refused[0].Items != 2 || !slices.Contains(r.Refused[0].Sample, tasks[3]) {
		t.Errorf("it would skip %+v", r.Refused)
	}
	h.Must(busy.Rollback(t.Context()))
	part := h.dryRun(o, 250)
	if part.LookedAt != 250 || part.Next == nil || *part.Next != 250 {
		t.Errorf("a part tells %+v", part)
	}
	// What it tells is what is done.
	h.start(o)
	h.release()
	h.look()
	h.wantCounts(o, tasker.OperationDone, counts{tasker.ItemVerified: 448, tasker.ItemSkipped: 2})
	_, err = h.ops.DryRun(t.Context(), o.UUID, 0, 100)
	h.WantCode(err, tasker.Conflict, "already done")
	_, err = h.ops.DryRun(t.Context(), o.UUID, -1, 100)
	h.WantCode(err, tasker.Invalid)
	if n := h.Count(fmt.Sprintf(`SELECT count(*) FROM tasker.ready_steps WHERE task_uuid <> '%s'`, tasks[7])); n != 448 {
		t.Errorf("%d steps are ready", n)
	}
}

// Operations that came to their end long ago are removed with their items, and no others.
func TestOldOperationsAreRemoved(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.stuck(2)
	old := h.planned(plan())
	_, err := h.ops.Abort(t.Context(), old.UUID, "ann")
	h.Must(err)
	open := h.planned(plan())
	prune := func(want int) {
		t.Helper()
		n, err := h.DB.PruneOperations(t.Context(), 90*24*time.Hour, 10)
		h.Must(err)
		if n != want {
			t.Errorf("%d operations were removed, want %d", n, want)
		}
	}
	prune(0)
	h.Exec(`UPDATE tasker.operations SET created_at = now() - interval '91 days', settled_at = settled_at - interval '91 days'`)
	prune(1)
	if n := h.Count(`SELECT count(*) FROM tasker.operation_items WHERE operation_uuid = $1`, old.UUID); n != 0 {
		t.Errorf("%d items are left of it", n)
	}
	h.wantCounts(open, tasker.OperationPlanned, counts{tasker.ItemPlanned: 2})
}

// A dry run beside the operation itself tells of what is still planned, and disturbs nothing.
func TestADryRunOfWhatRuns(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.stuck(300)
	o := h.started(plan())
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for range 5 {
				if _, err := h.ops.DryRun(t.Context(), o.UUID, 0, 300); err != nil && tasker.CodeOf(err) != tasker.Conflict {
					t.Error(err)
				}
			}
		})
	}
	h.Eventually("all are released", func() bool {
		h.release()
		return h.touched(o) == 300
	})
	wg.Wait()
	h.wantCounts(o, tasker.OperationRunning, counts{tasker.ItemReleased: 300})
}
