package postgres

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
)

// aloneCase is a report of the success of a step s1 on which s2 depends, for short statements or not.
type aloneCase struct {
	before  string // SQL
	last    bool   // no step depends on it
	next    func(*testing.T, *DB, *NextClaim)
	general bool // it goes the general way
	asks    bool // there may be more for the worker
	queued  bool // compared with a claim that finds in the queue what became ready
}

const otherStep = `INSERT INTO tasker.workflow_steps (task_uuid, step_uuid, name, step_type, namespace, handler, priority, state, state_since, parent_uuids, child_uuids,
	parents_open, attempts, max_attempts, retryable, backoff, backoff_base_ms, max_backoff_ms, backoff_jitter, created_at, updated_at, inputs_bytes, lease_expires_at)
	SELECT task_uuid, tasker.uuid_generate_v7(), 'other', 'standard', 'a', 'x', 0, 'in_progress', now(), '{}', '{}', 0, 1, 3, true, 'constant', 1, 1, false, now(), now(), 2, now() + interval '1 hour'
	FROM tasker.tasks; `

const joins = `UPDATE tasker.workflow_steps SET parents_open = 2, parent_uuids = parent_uuids || gen_random_uuid() WHERE name = 's2'; `

var aloneCases = map[string]aloneCase{
	"a step becomes ready":                                  {},
	"the task is complete":                                  {last: true},
	"… and has a step that was skipped":                     {last: true, before: otherStep + `UPDATE tasker.workflow_steps SET state = 'skipped', lease_expires_at = NULL, skip_reason = 'condition' WHERE name = 'other'`},
	"another is under way":                                  {last: true, before: otherStep},
	"another waits in the queue":                            {last: true, before: otherStep + `UPDATE tasker.workflow_steps SET state = 'enqueued', lease_expires_at = NULL, expires_at = now(), namespace = 'b' WHERE name = 'other'`},
	"another of two parents":                                {before: otherStep + joins},
	"the last of several children waits for another parent": {before: otherStep + manyChildren("2") + joins},
	"its history has its claim":                             {before: `UPDATE tasker.workflow_steps SET unwritten = 0`},
	"its history has no move of it":                         {before: `UPDATE tasker.workflow_steps SET unwritten = 3, moves_id = 7, enqueued_at = now(), last_attempted_at = now()`},
	"its history has no claim":                              {before: `UPDATE tasker.workflow_steps SET unwritten = 2, moves_id = 7, last_attempted_at = now()`},
	"with timeouts":                                         {before: `UPDATE tasker.workflow_steps SET timeout_ms = 10, timeout_at = CASE state WHEN 'in_progress' THEN now() END, queue_ttl_ms = 5`},
	"an attempt before it was reported":                     {before: `UPDATE tasker.workflow_steps SET reported_fence = 0, report_digest = '\x02', error = '{"message": "m"}', last_failure_at = now(), attempts = 2`},
	"its child is not measured":                             {before: `UPDATE tasker.workflow_steps SET inputs_bytes = NULL WHERE name = 's2'`},
	"its child is too large":                                {before: `UPDATE tasker.workflow_steps SET inputs_bytes = ` + maxInputBytes + ` - 1 WHERE name = 's2'`},
	"its child is as large as may be":                       {before: `UPDATE tasker.workflow_steps SET inputs_bytes = ` + maxInputBytes + ` - 2 WHERE name = 's2'`},
	"its child is of another handler":                       {before: `UPDATE tasker.workflow_steps SET handler = 'y' WHERE name = 's2'`},
	"its child is of another namespace":                     {before: `UPDATE tasker.workflow_steps SET namespace = 'b' WHERE name = 's2'`},
	"several children":                                      {before: manyChildren("2")},
	"some are too large together":                           {before: manyChildren("2") + `UPDATE tasker.workflow_steps SET inputs_bytes = 10000000 WHERE name = 'child1'`},

	"its task has made progress before": {before: `UPDATE tasker.tasks SET state_since = now() - interval '2 seconds'`},
	"… by a template with a limit":      {before: `UPDATE tasker.tasks SET state_since = now() - interval '2 seconds'; UPDATE tasker.task_templates SET max_steps_in_process_minutes = 7`},
	"… and another is under way":        {last: true, before: otherStep + `UPDATE tasker.tasks SET state_since = now() - interval '2 seconds'`},

	"of another worker":         {before: `UPDATE tasker.workflow_steps SET worker_uuid = gen_random_uuid()`, general: true},
	"under another fence":       {before: `UPDATE tasker.workflow_steps SET fence = 2`, general: true},
	"that has ended":            {before: `UPDATE tasker.workflow_steps SET state = 'complete', lease_expires_at = NULL WHERE name = 's1'`, general: true},
	"with attributes":           {before: `UPDATE tasker.workflow_steps SET attributes_at = 'infinity' WHERE name = 's1'`, general: true},
	"of several parents one":    {before: `UPDATE tasker.workflow_steps SET join_rule = 'any', decided_at = now() WHERE name = 's1'`, general: true},
	"a decision":                {before: `UPDATE tasker.workflow_steps SET is_decision = true WHERE name = 's1'`, general: true},
	"an item":                   {before: `UPDATE tasker.workflow_steps SET map_step_uuid = gen_random_uuid(), item_ordinal = 0, item = '1' WHERE name = 's1'`, general: true},
	"its child is decided":      {before: `UPDATE tasker.workflow_steps SET join_rule = 'all' WHERE name = 's2'`, general: true},
	"its child waits":           {before: `UPDATE tasker.workflow_steps SET step_type = 'wait', timeout_ms = 1000 WHERE name = 's2'`, general: true},
	"its child is a map step":   {before: `UPDATE tasker.workflow_steps SET step_type = 'map' WHERE name = 's2'`, general: true},
	"its child does not wait":   {before: `UPDATE tasker.workflow_steps SET state = 'cancelled', parents_open = 0 WHERE name = 's2'`, general: true},
	"nothing else is under way": {before: joins, general: true},
	"another is retried later":  {last: true, before: otherStep + `UPDATE tasker.workflow_steps SET state = 'error', lease_expires_at = NULL, next_retry_at = now() WHERE name = 'other'`, general: true},
	"another has failed":        {last: true, before: otherStep + `UPDATE tasker.workflow_steps SET state = 'error', lease_expires_at = NULL WHERE name = 'other'`, general: true},
	"another is cancelled":      {last: true, before: otherStep + `UPDATE tasker.workflow_steps SET state = 'cancelled', lease_expires_at = NULL WHERE name = 'other'`, general: true},
	"its task waits":            {before: `UPDATE tasker.tasks SET state = 'waiting_for_retry'`, general: true},
	"its task undoes":           {before: `UPDATE tasker.tasks SET phase = 'compensating'`, general: true},
}

// Of the cases in which the worker wants more.
var aloneNextCases = map[string]aloneCase{
	"its child is not measured":                  {before: `UPDATE tasker.workflow_steps SET inputs_bytes = NULL WHERE name = 's2'`, asks: true},
	"its child is too large":                     {before: `UPDATE tasker.workflow_steps SET inputs_bytes = ` + maxInputBytes + ` - 1 WHERE name = 's2'`, asks: true},
	"the worker is not given its child":          {next: notGiven, asks: true},
	"some are too large together":                {before: manyChildren("2") + `UPDATE tasker.workflow_steps SET inputs_bytes = 10000000 WHERE name = 'child1'`, asks: true},
	"something waits":                            {before: waitingStep("a", "x", 0), asks: true},
	"something waits elsewhere":                  {before: waitingStep("b", "x", 9) + waitingStep("a", "y", 9)},
	"as urgent waits for one place":              {before: waitingStep("a", "x", 0), next: limit(1)},
	"more urgent waits for one place":            {before: waitingStep("a", "x", 1), next: limit(1), asks: true},
	"as urgent waits of another queue":           {before: waitingStep("a", "w", 0), next: limit(1)},
	"something waits, and nothing becomes ready": {before: otherStep + joins + waitingStep("a", "x", -1), next: limit(1), asks: true},
	"something waits, and it is the last":        {last: true, before: waitingStep("a", "x", -1), next: limit(1), asks: true},
	"something is held":                          {before: `INSERT INTO tasker.claim_conditions VALUES (gen_random_uuid())`, asks: true},
	"there are limits":                           {before: limitsOfAll["shared"], asks: true},
	"some come first by due times":               {before: `INSERT INTO tasker.due_queues (namespace, handler) VALUES ('a', 'x')`, asks: true},
	"… of other queues":                          {before: `INSERT INTO tasker.due_queues (namespace, handler) VALUES ('b', 'x'), ('a', 'y')`},
	"the worker drains":                          {before: `UPDATE tasker.workers SET draining_since = now()`},
	"the worker has left":                        {before: `UPDATE tasker.workers SET left_at = now()`},
	"more children than are wanted":              {before: manyChildren("3"), queued: true},
	"… all of one priority":                      {before: manyChildren("3") + `UPDATE tasker.workflow_steps SET priority = 0`, queued: true},
	"… of which it takes some":                   {before: manyChildren("3") + `UPDATE tasker.workflow_steps SET handler = 'y' WHERE name IN ('child1', 'child3')`, queued: true},
	"… where the worker drains, too":             {before: manyChildren("3") + `UPDATE tasker.workers SET draining_since = now()`},
}

func manyChildren(n string) string { return fmt.Sprintf(addChildren, n) + "; " }

func waitingStep(namespace, handler string, priority int) string {
	return `INSERT INTO tasker.ready_steps (namespace, handler, priority, state_since, step_uuid, task_uuid, expires_at) VALUES ('` + namespace + `', '` + handler + `', ` + strconv.Itoa(priority) + `, now(), gen_random_uuid(), gen_random_uuid(), now() + interval '1 hour'); `
}

// The short statements leave what those for any report leave, or nothing.
func TestASuccessIsConcludedAloneAsAnyOther(t *testing.T) {
	t.Parallel()
	for _, wants := range []bool{false, true} {
		cases := maps.Clone(aloneCases)
		if wants {
			maps.Copy(cases, aloneNextCases)
		}
		for _, name := range slices.Sorted(maps.Keys(cases)) {
			t.Run(map[bool]string{false: name, true: name + ", for a worker that wants more"}[wants], func(t *testing.T) {
				t.Parallel()
				cases[name].run(t, wants)
			})
		}
	}
}

func (a aloneCase) run(t *testing.T, wants bool) {
	t.Helper()
	db := openNew(t, Options{PriorityAge: -1, Announce: !a.queued})
	steps := 2
	if a.last {
		steps = 1
	}
	c := chain(t, db, steps)
	if a.before != "" {
		if _, err := admin(t, db).Exec(t.Context(), a.before, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	execute(t, db, `UPDATE tasker.tasks SET warn_at = state_since + interval '24 minutes', stale_at = state_since + interval '30 minutes'`)
	var next *NextClaim
	if wants {
		next = &NextClaim{Claimant: Claimant{WorkerUUID: *c.Worker, Namespaces: []string{"a"}, Handlers: []string{"w", "x"}, Lease: time.Minute}, Limit: 3}
		if a.next != nil {
			a.next(t, db, next)
		}
	}
	unchanged, _ := left(t, db)
	alone, got := left(t, db, func(tx pgx.Tx) []tasker.ID {
		rows, err := collect[singleResult](t.Context(), tx, concludeSuccess, db.newSingleArgs(&c, next, claimMode{})...)
		if err != nil {
			t.Fatal(err)
		}
		if rows[0].Concluded == a.general {
			t.Errorf("it is concluded: %v", rows[0].Concluded)
		}
		if rows[0].Asks != a.asks {
			t.Errorf("there may be more: %v", rows[0].Asks)
		}
		if next != nil {
			execTx(t, tx, claimReady)
		}
		return rows[0].Enqueued
	})
	if a.general {
		if diff := gocmp.Diff(unchanged, alone); diff != "" {
			t.Errorf("changed (-before +after)\n%s", diff)
		}
		return
	}
	general, want := left(t, db, func(tx pgx.Tx) []tasker.ID { return a.reportAny(t, db, tx, c, next) })
	if diff := gocmp.Diff(general, alone); diff != "" {
		t.Errorf("left (-want +got)\n%s", diff)
	}
	if a.queued {
		return // a step that was enqueued first is among the others
	}
	if diff := gocmp.Diff(want, got, cmpopts.SortSlices(func(a, b tasker.ID) bool { return bytes.Compare(a[:], b[:]) < 0 })); diff != "" {
		t.Errorf("enqueued (-want +got)\n%s", diff)
	}
}

// reportAny reports by the statements for reports of all kinds, and returns what was enqueued.
func (a aloneCase) reportAny(t *testing.T, db *DB, tx pgx.Tx, c Conclusion, next *NextClaim) []tasker.ID {
	t.Helper()
	sql, args := concludeSteps, newConclusionArgs([]Conclusion{c}, db.queue)
	claim, claimArgs := claimReady, []any(nil)
	switch {
	case a.queued:
		claim, claimArgs = next.claimStatement(next.Limit, tasker.MaxClaimBytes, next.Limit, claimMode{})
	case next != nil:
		sql, args = concludeAndClaim, append(newSuccessArgs([]Conclusion{c}, db.queue), next.directArgs(claimMode{})...)
	}
	rows, err := collect[Concluded](t.Context(), tx, sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	execTx(t, tx, settleReported, []tasker.ID{c.TaskUUID}, false, "", "")
	if next != nil {
		execTx(t, tx, claim, claimArgs...)
	}
	return rows[0].Enqueued
}

func execTx(t *testing.T, tx pgx.Tx, sql string, args ...any) {
	t.Helper()
	if _, err := tx.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// left returns what a transaction leaves, and takes it back.
func left(t *testing.T, db *DB, do ...func(pgx.Tx) []tasker.ID) (rows []map[string]any, enqueued []tasker.ID) {
	t.Helper()
	tx, err := db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	for _, f := range do {
		enqueued = f(tx)
	}
	list, err := collectColumn[string](t.Context(), tx, after)
	if err != nil || len(list) < 2 {
		t.Fatal(list, err)
	}
	rows = make([]map[string]any, len(list))
	for i, row := range list {
		if err := json.Unmarshal([]byte(row), &rows[i]); err != nil {
			t.Fatal(err)
		}
		if steps, ok := rows[i]["steps"].([]any); ok { // of a claim, in any order
			slices.SortFunc(steps, func(a, b any) int { return cmp.Compare(a.(string), b.(string)) })
		}
	}
	slices.SortFunc(rows, func(a, b map[string]any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return rows, enqueued
}

// batched records the statements of batches.
type batched struct {
	mu  sync.Mutex
	sql []string
}

func (b *batched) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (b *batched) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (b *batched) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}
func (b *batched) TraceBatchQuery(_ context.Context, _ *pgx.Conn, q pgx.TraceBatchQueryData) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sql = append(b.sql, q.SQL)
}
func (b *batched) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// take returns which of the ways of a report were gone, and begins anew.
func (b *batched) take() (ways string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, sql := range b.sql {
		switch sql {
		case concludeSuccess:
			ways += "alone "
		case claimReady:
			ways += "claim "
		case concludeSucceeded, concludeSteps:
			ways += "general "
		}
	}
	b.sql = nil
	return ways
}

// A report of one success goes by the short statements, the general way where they leave it alone, and after that the general
// way for a while.
func TestAReportOfOneSuccess(t *testing.T) {
	t.Parallel()
	seen := &batched{}
	db := openNew(t, Options{PriorityAge: -1, ReportQueues: true, Tracer: seen})
	c := chain(t, db, 4)
	next := &NextClaim{Claimant: Claimant{WorkerUUID: *c.Worker, Namespaces: []string{"a"}, Handlers: []string{"x"}, Lease: time.Minute}, Limit: 1}
	report := func(next *NextClaim) (Concluded, ClaimResult) {
		t.Helper()
		seen.take()
		concluded, claimed, err := db.Report(t.Context(), []Conclusion{c}, next)
		if err != nil || len(concluded.Moved) != 1 || len(concluded.Queues) != 1 || concluded.Queues[0] != (Queue{"a", "x"}) {
			t.Fatalf("concluded %+v, %v", concluded, err)
		}
		return concluded, claimed
	}

	concluded, claimed := report(next)
	if ways := seen.take(); ways != "alone claim " || len(claimed.Steps) != 1 || claimed.Steps[0].Name != "s2" || len(concluded.Enqueued) != 0 {
		t.Fatalf("reported by %q: %+v, handed out %+v", ways, concluded, claimed.Steps)
	}
	claimedAlone := claimed.Steps[0]
	c.StepUUID, c.Fence = claimedAlone.StepUUID, claimedAlone.Fence
	concluded, claimed = report(nil)
	if ways := seen.take(); ways != "alone " || len(claimed.Steps) != 0 || len(concluded.Enqueued) != 1 || !slices.Equal(concluded.Namespaces, []string{"a"}) {
		t.Fatalf("reported by %q: %+v, handed out %+v", ways, concluded, claimed.Steps)
	}

	// s3 is in the queue. While its worker has it, something more urgent waits.
	claimed, err := db.ClaimSteps(t.Context(), next.Claimant, 1)
	if err != nil || len(claimed.Steps) != 1 {
		t.Fatal(claimed, err)
	}
	execute(t, db, addWaiting, 1)
	c.StepUUID, c.Fence = claimed.Steps[0].StepUUID, claimed.Steps[0].Fence
	concluded, claimed = report(next)
	if ways := seen.take(); ways != "alone claim " || len(claimed.Steps) != 1 || claimed.Steps[0].Name != "waiting" || len(concluded.Enqueued) != 1 {
		t.Fatalf("reported by %q: %+v, handed out %+v", ways, concluded, claimed.Steps)
	}
	for n := range fastPathCooldown + 1 {
		if got := db.canConcludeSingle([]Conclusion{c}, next, claimMode{}); got != (n == fastPathCooldown) {
			t.Errorf("after %d more of them the next report may go by the short statements: %v", n, got)
		}
	}
}

// What the short statements do not look at does not come to them.
func TestWhichReportsAreOfOneSuccess(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{PriorityAge: -1})
	worker := tasker.NewID()
	c := Conclusion{Worker: &worker}
	next := func(change func(*NextClaim)) *NextClaim {
		n := &NextClaim{Claimant: Claimant{WorkerUUID: worker, Namespaces: []string{"a"}, Handlers: []string{"x"}}, Limit: 1}
		if change != nil {
			change(n)
		}
		return n
	}
	for name, of := range map[string]struct {
		list []Conclusion
		next *NextClaim
		look claimMode
		want bool
	}{
		"one":                   {list: []Conclusion{c}, want: true},
		"one, and more work":    {list: []Conclusion{c}, next: next(nil), want: true},
		"two":                   {list: []Conclusion{c, c}},
		"a decision":            {list: []Conclusion{{Worker: &worker, Reason: "r"}}},
		"no more steps wanted":  {list: []Conclusion{c}, next: next(func(n *NextClaim) { n.Limit = 0 })},
		"too many queues":       {list: []Conclusion{c}, next: next(func(n *NextClaim) { n.Handlers = make([]string, manyQueues+1) })},
		"namespaces take turns": {list: []Conclusion{c}, next: next(nil), look: claimMode{turn: &fairOrder{}}},
		"something is held":     {list: []Conclusion{c}, next: next(nil), look: claimMode{asks: true}},
	} {
		if got := db.canConcludeSingle(of.list, of.next, of.look); got != of.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// What a report of one success costs does not grow with the steps of its task, as long as some of them have not ended.
func TestAReportOfOneSuccessDoesNotCountTheStepsOfItsTask(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{})
	c := chain(t, db, 1)
	execute(t, db, `INSERT INTO tasker.workflow_steps (task_uuid, step_uuid, name, step_type, namespace, handler, priority, state, state_since, parent_uuids, child_uuids,
		parents_open, attempts, max_attempts, retryable, backoff, backoff_base_ms, max_backoff_ms, backoff_jitter, created_at, updated_at, inputs_bytes, expires_at)
		SELECT task_uuid, ('ffffffff-ffff-7fff-8fff-' || lpad(n::text, 12, '0'))::uuid, 'other' || n, 'standard', 'b', 'x', 0, CASE WHEN n > 290 THEN 'enqueued' ELSE 'complete' END, now(), '{}', '{}', 0, 1, 3, true, 'constant', 1, 1, false,
			now(), now(), 2, CASE WHEN n > 290 THEN now() + interval '1 hour' END
		FROM tasker.tasks, generate_series(1, 300) n`)
	execute(t, db, `ANALYZE tasker.workflow_steps`)
	tx, err := db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	before := stepsRead(t, tx)
	rows, err := collect[singleResult](t.Context(), tx, concludeSuccess, db.newSingleArgs(&c, nil, claimMode{})...)
	if err != nil || !rows[0].Concluded {
		t.Fatal(rows, err)
	}
	if n := stepsRead(t, tx) - before; n > 6 {
		t.Errorf("%d rows of steps were read", n)
	}
}

// leaves says that so much time is left whenever it is asked, and does not end by itself.
type leaves struct {
	context.Context
	time time.Duration
}

func (l leaves) Deadline() (time.Time, bool) { return time.Now().Add(l.time), true }

// What waits is claimed after such a report as far as the answer and the time of its caller allow.
func TestAClaimAfterAReportIsWithinItsBounds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		within time.Duration
		want   string
	}{
		"bytes": {time.Minute, "s2 waiting"},
		"time":  {minClaimTime - time.Second, "s2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openNew(t, Options{PriorityAge: -1})
			done := chain(t, db, 2)
			for range 3 {
				execute(t, db, addWaiting, 0)
			}
			if _, err := admin(t, db).Exec(t.Context(), `UPDATE tasker.workflow_steps SET inputs_bytes = CASE name WHEN 's2' THEN 5 ELSE 2 END << 20 WHERE name <> 's1'`); err != nil {
				t.Fatal(err)
			}
			ctx := leaves{t.Context(), c.within}
			next := NextClaim{Claimant: Claimant{WorkerUUID: *done.Worker, Namespaces: []string{"a"}, Handlers: []string{"x"}, Lease: time.Minute}, Limit: 10}
			_, claimed, err := db.Report(ctx, []Conclusion{done}, &next)
			if err != nil {
				t.Fatal(err)
			}
			var got []tasker.ID
			for _, s := range claimed.Steps {
				got = append(got, s.StepUUID)
			}
			if names := (directCase{}).names(t, db, got); names != c.want {
				t.Errorf("handed out %q, want %q", names, c.want)
			}
		})
	}
}
