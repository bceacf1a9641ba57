package postgres

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
)

// addWaiting adds a task with a step of handler x that was enqueued a minute ago.
const addWaiting = `
WITH task AS (
    INSERT INTO tasker.tasks (task_uuid, template_uuid, namespace, name, version, state, state_since, warn_at, stale_at, context, context_bytes, correlation_id, created_at, updated_at)
    SELECT tasker.uuid_generate_v7(), template_uuid, 'a', 'b', '1.0.0', 'steps_in_process', now(), now() + interval '1 hour', now() + interval '2 hours', '{}', 2, '', now(), now()
    FROM tasker.task_templates
    RETURNING task_uuid
)
INSERT INTO tasker.workflow_steps (task_uuid, step_uuid, name, step_type, namespace, handler, priority, state, state_since, parent_uuids, child_uuids,
    parents_open, attempts, max_attempts, retryable, backoff, backoff_base_ms, max_backoff_ms, backoff_jitter, expires_at, created_at, updated_at, inputs_bytes)
SELECT task_uuid, tasker.uuid_generate_v7(), 'waiting', 'standard', 'a', 'x', $1, 'enqueued', now() - interval '1 minute', '{}', '{}',
    0, 1, 3, true, 'constant', 1, 1, false, now() + interval '1 hour', now(), now(), 2
FROM task`

// addChildren adds children to step s1, with priorities from 1 upwards.
const addChildren = `
WITH child AS (
    INSERT INTO tasker.workflow_steps (task_uuid, step_uuid, name, step_type, namespace, handler, priority, state, state_since, parent_uuids, child_uuids,
        parents_open, attempts, max_attempts, retryable, backoff, backoff_base_ms, max_backoff_ms, backoff_jitter, fence, created_at, updated_at, inputs_bytes)
    SELECT s.task_uuid, tasker.uuid_generate_v7(), 'child' || n, 'standard', 'a', 'x', n, 'pending', now(), ARRAY[s.step_uuid], '{}', 1, 0, 3, true, 'constant', 1, 1, false, 1, now(), now(), 2
    FROM tasker.workflow_steps s, generate_series(1, %[1]s) n
    WHERE s.name = 's1'
    RETURNING step_uuid
)
UPDATE tasker.workflow_steps SET child_uuids = child_uuids || ARRAY(SELECT step_uuid FROM child) WHERE name = 's1'`

// directCase describes a report of step s1, on which s2 depends, by a worker of handler x that
// wants one more step. The results are names of steps.
type directCase struct {
	before  string // SQL
	waiting string // priorities of enqueued steps
	next    func(*testing.T, *DB, *NextClaim)

	direct string // claimed directly
	queued string // became ready and enqueued
	got    string // returned to the worker

}

var directCases = map[string]directCase{
	"nothing waits":                       {direct: "s2", got: "s2"},
	"as urgent waits":                     {waiting: "0 0", direct: "s2", got: "s2"},
	"less urgent waits":                   {waiting: "-1", direct: "s2", got: "s2"},
	"more urgent waits":                   {waiting: "0 1", queued: "s2", got: "waiting"},
	"the worker wants more":               {waiting: "0", next: limit(3), direct: "s2", got: "s2 waiting"},
	"the worker has several handlers":     {waiting: "0", next: queues("a", "w x", 3), direct: "s2", got: "s2 waiting"},
	"… and more urgent waits":             {waiting: "1", next: queues("a", "w x", 1), queued: "s2", got: "waiting"},
	"of another handler":                  {next: queues("a", "w", 1), queued: "s2"},
	"of another namespace":                {next: queues("b", "x", 1), queued: "s2"},
	"several namespaces":                  {next: queues("a b", "x", 1), queued: "s2", got: "s2"},
	"the worker is not given it":          {next: notGiven, queued: "s2"},
	"the worker drains":                   {before: `UPDATE tasker.workers SET draining_since = now()`, queued: "s2"},
	"the worker has left":                 {before: `UPDATE tasker.workers SET left_at = now()`, queued: "s2"},
	"something is held":                   {before: `INSERT INTO tasker.claim_conditions VALUES (gen_random_uuid())`, queued: "s2", got: "s2"},
	"something was held a moment ago":     {next: func(_ *testing.T, db *DB, _ *NextClaim) { db.recordHold() }, queued: "s2", got: "s2"},
	"a limit":                             {before: limitsOfAll["shared"], queued: "s2", got: "s2"},
	"a claim by age":                      {waiting: "0", next: func(_ *testing.T, db *DB, _ *NextClaim) { db.turns.age = time.Second }, queued: "s2", got: "waiting"},
	"only what becomes ready":             {waiting: "0", next: onlyReady, direct: "s2", got: "s2"},
	"… where more urgent waits":           {waiting: "1", next: onlyReady, queued: "s2"},
	"… where something is held":           {before: `INSERT INTO tasker.claim_conditions VALUES (gen_random_uuid())`, next: onlyReady, queued: "s2"},
	"… of several namespaces":             {waiting: "0", next: func(t *testing.T, db *DB, n *NextClaim) { n.Namespaces = []string{"b", "a"}; onlyReady(t, db, n) }, direct: "s2", got: "s2"},
	"… where a claim would go by age":     {waiting: "0", next: func(t *testing.T, db *DB, n *NextClaim) { db.turns.age = time.Second; onlyReady(t, db, n) }, direct: "s2", got: "s2"},
	"not measured":                        {before: `UPDATE tasker.workflow_steps SET inputs_bytes = NULL WHERE name = 's2'`, queued: "s2"},
	"too large":                           {before: `UPDATE tasker.workflow_steps SET inputs_bytes = ` + strconv.Itoa(tasker.MaxInputBytes) + ` - 1 WHERE name = 's2'`, queued: "s2"},
	"as large as may be":                  {before: `UPDATE tasker.workflow_steps SET inputs_bytes = ` + strconv.Itoa(tasker.MaxInputBytes) + ` - 2 WHERE name = 's2'`, direct: "s2", got: "s2"},
	"other parents":                       {before: `UPDATE tasker.workflow_steps SET parents_open = 2, parent_uuids = parent_uuids || gen_random_uuid() WHERE name = 's2'`},
	"decided":                             {before: `UPDATE tasker.workflow_steps SET join_rule = 'all' WHERE name = 's2'`},
	"waits for an answer":                 {before: `UPDATE tasker.workflow_steps SET step_type = 'external' WHERE name = 's2'`},
	"as many children as are wanted":      {before: fmt.Sprintf(addChildren, "2"), next: limit(3), direct: "child1 child2 s2", got: "child1 child2 s2"},
	"… of which one is less urgent":       {before: fmt.Sprintf(addChildren, "2"), waiting: "1", next: limit(3), direct: "child1 child2", queued: "s2", got: "child1 child2 waiting"},
	"more children than are wanted":       {before: fmt.Sprintf(addChildren, "2"), next: limit(2), direct: "child1 s2", queued: "child2", got: "child1 s2"},
	"children that are too much together": {before: fmt.Sprintf(addChildren, "19") + `; UPDATE tasker.workflow_steps SET inputs_bytes = 1000000 WHERE name <> 's1' AND name <> 's2'`, next: limit(20), direct: "child1 child2 child3 child4 child5 child6 child7 child8 s2", queued: "child10 child11 child12 child13 child14 child15 child16 child17 child18 child19 child9", got: "child1 child2 child3 child4 child5 child6 child7 child8 s2"},
}

// notGiven excludes s2 from the claim.
func notGiven(t *testing.T, db *DB, n *NextClaim) {
	t.Helper()
	var err error
	if n.Without, err = collectColumn[tasker.ID](t.Context(), db.pool, `SELECT step_uuid FROM tasker.workflow_steps WHERE name = 's2'`); err != nil {
		t.Fatal(err)
	}
}

func onlyReady(_ *testing.T, _ *DB, n *NextClaim) { n.Limit, n.OnlyReady = 3, true }

func limit(steps int) func(*testing.T, *DB, *NextClaim) {
	return func(_ *testing.T, _ *DB, n *NextClaim) { n.Limit = steps }
}

func queues(namespaces, handlers string, steps int) func(*testing.T, *DB, *NextClaim) {
	return func(_ *testing.T, _ *DB, n *NextClaim) {
		n.Namespaces, n.Handlers, n.Limit = strings.Fields(namespaces), strings.Fields(handlers), steps
	}
}

// The reporting worker claims a step that its report made ready, unless a more urgent step comes
// first or the step cannot be claimed.
func TestStepsAreClaimedDirectly(t *testing.T) {
	t.Parallel()
	for _, heads := range []bool{false, true} {
		for _, name := range slices.Sorted(maps.Keys(directCases)) {
			t.Run(fmt.Sprintf("%s, heads: %v", name, heads), func(t *testing.T) {
				t.Parallel()
				directCases[name].run(t, heads)
			})
		}
	}
}

func (c directCase) run(t *testing.T, heads bool) {
	t.Helper()
	db := openNew(t, Options{PriorityAge: -1})
	done := chain(t, db, 2)
	if c.before != "" {
		if _, err := admin(t, db).Exec(t.Context(), c.before, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	for p := range strings.FieldsSeq(c.waiting) {
		priority, err := strconv.Atoi(p)
		if err != nil {
			t.Fatal(err)
		}
		execute(t, db, addWaiting, priority)
	}
	if heads {
		db.heads.enable(true)
		if err := db.RefreshQueueHeads(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	next := NextClaim{Claimant: Claimant{WorkerUUID: *done.Worker, Namespaces: []string{"a"}, Handlers: []string{"x"}, Lease: time.Minute}, Limit: 1}
	if c.next != nil {
		c.next(t, db, &next)
	}
	concluded, claimed, err := db.Report(t.Context(), []core.Outcome{done}, &next)
	if err != nil || len(concluded.Moved) != 1 {
		t.Fatalf("concluded %+v, %v", concluded, err)
	}
	if got := c.names(t, db, concluded.Enqueued); got != c.queued {
		t.Errorf("enqueued are %q, want %q", got, c.queued)
	}
	if names := c.names(t, db, collectValues(claimed.Steps,
		func(s *Claimed) tasker.ID { return s.StepUUID })); names != c.got {
		t.Errorf("handed out %q, want %q", names, c.got)
	}
	direct, err := collectColumn[tasker.ID](t.Context(), db.pool, `
		SELECT step_uuid FROM tasker.workflow_steps WHERE state = 'in_progress' AND enqueued_at = last_attempted_at`)
	if names := c.names(t, db, direct); err != nil || names != c.direct {
		t.Errorf("claimed directly are %q, want %q (%v)", names, c.direct, err)
	}
	watched, err := collectColumn[tasker.ID](t.Context(), db.pool, `
		SELECT s.step_uuid FROM tasker.claims c CROSS JOIN unnest(c.tasks, c.steps) AS u (task_uuid, step_uuid) JOIN tasker.workflow_steps s USING (task_uuid, step_uuid)
		WHERE s.lease_expires_at IS NOT NULL AND coalesce(s.last_attempted_at, s.state_since) = c.claimed_at`)
	if names := c.names(t, db, watched); err != nil || names != c.got {
		t.Errorf("the leases of %q are looked at when they end, want %q (%v)", names, c.got, err)
	}
	for _, s := range claimed.Steps {
		if slices.Contains(direct, s.StepUUID) {
			claimedAsAny(t, db, s, next)
		}
	}
}

func (directCase) names(t *testing.T, db *DB, steps []tasker.ID) string {
	t.Helper()
	list, err := collectColumn[string](t.Context(), db.pool, `SELECT name FROM tasker.workflow_steps WHERE step_uuid = ANY ($1) ORDER BY name COLLATE "C"`, nonNil(steps))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(list, " ")
}

// claimedAsAny checks that a directly claimed step equals one that was claimed from its queue.
func claimedAsAny(t *testing.T, db *DB, s Claimed, next NextClaim) {
	t.Helper()
	if s.Fence != 2 || len(s.DependencyResults) != 1 || string(s.DependencyResults["s1"]) != "{}" || time.Until(s.LeaseExpiresAt) > time.Minute || time.Until(s.LeaseExpiresAt) < 30*time.Second {
		t.Errorf("handed out %+v", s)
	}
	ref := []tasker.Lease{{TaskUUID: s.TaskUUID, StepUUID: s.StepUUID, Fence: s.Fence}}
	if extended, _, err := db.ExtendLeases(t.Context(), next.WorkerUUID, time.Minute, ref); err != nil || len(extended) != 1 {
		t.Errorf("extended %v, %v", extended, err)
	}
	moves := `SELECT s.from_state || ' ' || s.to_state FROM tasker.workflow_step_transitions s WHERE s.step_uuid = $1 ORDER BY s.transition_id`
	before, err := collectColumn[string](t.Context(), db.pool, moves, s.StepUUID)
	if want := "[pending enqueued enqueued in_progress]"; err != nil || fmt.Sprint(before) != want {
		t.Errorf("its history is %v (%v), want %s", before, err, want)
	}
	end := core.Outcome{
		TaskUUID: s.TaskUUID, StepUUID: s.StepUUID, From: tasker.StepInProgress, Fence: s.Fence, Event: core.Succeed,
		Worker: &next.WorkerUUID, ResultSize: 2, Body: []byte(`{"result": {}}`), Digest: []byte{1},
	}
	if ended, _, err := db.Report(t.Context(), []core.Outcome{end}, nil); err != nil || len(ended.Moved) != 1 {
		t.Errorf("concluded %+v, %v", ended, err)
	}
	after, err := collectColumn[string](t.Context(), db.pool, moves, s.StepUUID)
	if want := append(slices.Clone(before), "in_progress complete"); err != nil || !slices.Equal(after, want) {
		t.Errorf("its history is %v (%v), want %v", after, err, want)
	}
}
