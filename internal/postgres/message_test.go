package postgres

import (
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/notice"
	"tasker.example/tasker/internal/pgtest"
)

// Of two servers that know an incident as it was, the first that writes says something.
func TestOfTwoThatKnowAnIncidentOneTells(t *testing.T) {
	db, err := Open(t.Context(), pgtest.New(t).URL, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	var caseID, incident tasker.ID
	err = db.pool.QueryRow(t.Context(), `
		INSERT INTO tasker.cases (namespace, task_name, step_name, dlq_reason, detail_code, error_type, error_pattern, state_since, first_seen_at, updated_at)
		VALUES ('shop', 'order', '', 'manual_dlq', 'x', '', '', now(), now(), now()) RETURNING case_id`).Scan(&caseID)
	if err == nil {
		err = db.pool.QueryRow(t.Context(), `
			INSERT INTO tasker.incidents (namespace, lead_case_id, dedup_key, severity) VALUES ('shop', $1, 'key', 'high') RETURNING incident_id`, caseID).Scan(&incident)
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		err := db.InTx(t.Context(), func(tx *Tx) error {
			told := &telling{tx: tx, now: time.Now()}
			return told.write(t.Context(), notice.Decision{
				Topic:    tasker.CaseGrewTopic,
				Incident: notice.Incident{ID: incident, Namespace: "shop", Lead: caseID, DedupKey: "key", Severity: tasker.High, ToldAt: time.Now()},
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	n, err := column[int](t.Context(), db.pool, `SELECT count(*) FROM tasker.messages`)
	if err != nil || n[0] != 1 {
		t.Errorf("%v messages, %v", n, err)
	}
}
