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
			told := &notificationPass{tx: tx, now: time.Now()}
			return told.store(t.Context(), notice.Decision{
				Topic:    tasker.CaseGrewTopic,
				Incident: notice.Incident{ID: incident, Namespace: "shop", Lead: caseID, DedupKey: "key", Severity: tasker.High, ToldAt: time.Now()},
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	n, err := collectColumn[int](t.Context(), db.pool, `SELECT count(*) FROM tasker.messages`)
	if err != nil || n[0] != 1 {
		t.Errorf("%v messages, %v", n, err)
	}
}

// What goes on is sent again to receivers that forget: a hold until it has ended.
func TestOpenHoldsAreSentAgain(t *testing.T) {
	t.Parallel()
	db, err := Open(t.Context(), pgtest.New(t).URL, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	const told = `
		WITH s AS (
			INSERT INTO tasker.emission_sinks (sink) VALUES ('pager') ON CONFLICT DO NOTHING
		),
		h AS (
			INSERT INTO tasker.holds (namespace, kind, reason, owner, ends_at, hold_uuid, state, blocks, ended_at)
			VALUES ('shop' || $2::bool, 'manual', 'down', 'ann', now() + interval '1 hour', $1, CASE WHEN $2::bool THEN 'ended' ELSE 'active' END, NOT $2::bool, CASE WHEN $2::bool THEN now() END)
		),
		m AS (
			INSERT INTO tasker.messages (topic, subject_kind, subject_id, namespaces, data) VALUES ('hold.began', 'hold', $1, '{shop}', '{}') RETURNING position
		)
		INSERT INTO tasker.message_emissions (position, sink, subject_id, state, published_at) SELECT position, 'pager', $1, 'published', now() FROM m`
	open, ended := tasker.NewID(), tasker.NewID()
	for _, id := range []tasker.ID{open, ended} {
		if _, err := db.pool.Exec(t.Context(), told, id, id == ended); err != nil {
			t.Fatal(err)
		}
	}
	list, err := db.OpenMessages(t.Context(), "pager", 10)
	if err != nil || len(list) != 1 || list[0].Subject.ID != open {
		t.Errorf("%v, %+v", err, list)
	}
}
