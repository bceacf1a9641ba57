package postgres

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
)

// after selects the rows after a conclusion. Times are replaced by whether they are set, and by the
// durations of leases, timeouts and waits.
const after = `
SELECT (SELECT jsonb_object_agg(e.key, CASE WHEN e.key ~ '(_at|_since|_id|position)$|_until$' AND e.value <> '"infinity"' THEN to_jsonb(e.value <> 'null') ELSE e.value END)
    FROM jsonb_each(to_jsonb(x.row)) e)::text AS row
FROM (
    SELECT to_jsonb(s) || jsonb_build_object('lease', s.lease_expires_at - s.state_since, 'timeout', s.timeout_at - s.state_since, 'expiry', s.expires_at - s.state_since) AS row,
        s.name, 1 AS place
    FROM tasker.workflow_steps s
    UNION ALL
    SELECT to_jsonb(h), s.name, 2 FROM tasker.step_history h JOIN tasker.workflow_steps s USING (task_uuid, step_uuid)
    UNION ALL
    SELECT to_jsonb(r) || jsonb_build_object('expiry', r.expires_at - r.state_since), s.name, 3 FROM tasker.ready_steps r JOIN tasker.workflow_steps s USING (task_uuid, step_uuid)
    UNION ALL
    SELECT to_jsonb(o), s.name, 4 FROM tasker.dispatch_outbox o JOIN tasker.workflow_steps s USING (task_uuid, step_uuid)
    UNION ALL
    SELECT to_jsonb(t) || jsonb_build_object('threshold', t.stale_at - t.state_since, 'warning', t.warn_at - t.state_since), t.name, 5 FROM tasker.tasks t
    UNION ALL
    SELECT to_jsonb(h), '', 6 FROM tasker.task_history h
    UNION ALL
    SELECT to_jsonb(c), '', 7 FROM tasker.claims c
) x
ORDER BY x.place, x.name, x.row::text`

// The statement for reported successes has the same effect as the one for all conclusions.
func TestAReportedSuccessIsConcludedAsAnyOther(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]string{
		"a step":                            ``,
		"its history has its claim":         `UPDATE tasker.workflow_steps SET unwritten = 0`,
		"its history has no move of it":     `UPDATE tasker.workflow_steps SET unwritten = 3, moves_id = 7, enqueued_at = now(), last_attempted_at = now()`,
		"its history has no claim":          `UPDATE tasker.workflow_steps SET unwritten = 2, moves_id = 7, last_attempted_at = now()`,
		"with a timeout":                    `UPDATE tasker.workflow_steps SET timeout_ms = 10, timeout_at = CASE state WHEN 'in_progress' THEN now() END`,
		"an attempt before it was reported": `UPDATE tasker.workflow_steps SET reported_fence = 0, report_digest = '\x02', error = '{"message": "m"}', last_failure_at = now(), attempts = 2`,
		"with attributes":                   `UPDATE tasker.workflow_steps SET attributes_at = 'infinity'`,
		"of several parents one":            `UPDATE tasker.workflow_steps SET join_rule = 'any', decided_at = now()`,
		"whose child is decided":            `UPDATE tasker.workflow_steps SET join_rule = 'all' WHERE name = 's2'`,
		"whose child waits":                 `UPDATE tasker.workflow_steps SET step_type = 'wait', timeout_ms = 1000 WHERE name = 's2'`,
		"whose child is not measured":       `UPDATE tasker.workflow_steps SET inputs_bytes = NULL WHERE name = 's2'`,
		"of another worker":                 `UPDATE tasker.workflow_steps SET worker_uuid = gen_random_uuid()`,
		"under another fence":               `UPDATE tasker.workflow_steps SET fence = 2`,
		"that has ended":                    `UPDATE tasker.workflow_steps SET state = 'complete', lease_expires_at = NULL WHERE name = 's1'`,
		"a decision without a reason":       `UPDATE tasker.workflow_steps SET is_decision = true WHERE name = 's1'`,
		"an item": `UPDATE tasker.workflow_steps SET step_type = 'map', join_rule = 'all', decided_at = now(), items_total = 2, parents_open = 2, items_limit = 1, items_free = 0, item_next = 2, parent_uuids = '{}' WHERE name = 's2';
			UPDATE tasker.workflow_steps s SET map_step_uuid = m.step_uuid, item_ordinal = 0, item = '1' FROM tasker.workflow_steps m WHERE s.name = 's1' AND m.name = 's2'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openNew(t, Options{})
			c := chain(t, db, 2)
			if before != "" {
				execute(t, db, `DO $$ BEGIN `+before+`; END $$`)
			}
			var concluded [2]Concluded
			var rows [2][]map[string]any
			for i, sql := range []string{concludeSteps, concludeSucceeded} {
				args := [][]any{newConclusionArgs([]Conclusion{c}, db.queue), newSuccessArgs([]Conclusion{c}, db.queue)}[i]
				rows[i], _ = left(t, db, func(tx pgx.Tx) []tasker.ID {
					list, err := collect[Concluded](t.Context(), tx, sql, args...)
					if err != nil {
						t.Fatal(err)
					}
					concluded[i] = list[0]
					return nil
				})
			}
			if !reflect.DeepEqual(concluded[0], concluded[1]) {
				t.Errorf("concluded %+v, want %+v", concluded[1], concluded[0])
			}
			if diff := cmp.Diff(rows[0], rows[1]); diff != "" {
				t.Errorf("left (-want +got)\n%s", diff)
			}
		})
	}
}

// All other conclusions use the general statement.
func TestWhatIsAReportedSuccess(t *testing.T) {
	t.Parallel()
	worker, operation := tasker.NewID(), tasker.NewID()
	success := Conclusion{From: tasker.StepInProgress, Event: "succeed", To: tasker.StepComplete, Worker: &worker, Digest: []byte{1}}
	if !areReportedSuccesses([]Conclusion{success, success}) {
		t.Error("two reported successes are none")
	}
	for name, change := range map[string]func(*Conclusion){
		"of another state": func(c *Conclusion) { c.From = tasker.StepPending }, "another event": func(c *Conclusion) { c.Event = "answer" },
		"a failure": func(c *Conclusion) { c.To = tasker.StepError }, "of nobody": func(c *Conclusion) { c.Worker = nil },
		"not reported": func(c *Conclusion) { c.Digest = nil }, "of a person": func(c *Conclusion) { c.Actor = "ann" },
		"of an operation": func(c *Conclusion) { c.Operation = &operation }, "that is kept": func(c *Conclusion) { c.KeepReport = []byte("{}") },
		"whose lease has run out": func(c *Conclusion) { c.Expired = true }, "with another fence": func(c *Conclusion) { c.RaiseFence = true },
	} {
		other := success
		change(&other)
		if areReportedSuccesses([]Conclusion{success, other}) {
			t.Errorf("%s counts as a reported success", name)
		}
	}
}
