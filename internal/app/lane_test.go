package app_test

import (
	"net/http"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/config"
	"tasker.example/tasker/internal/pgtest"
)

// However slow it is to remove what is old, a task starts when its start is due, and callers are known.
func TestASlowRetentionDelaysNoTimer(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	owner := database.Pool(t)
	for _, sql := range []string{
		`INSERT INTO tasker.task_templates (namespace, name, version, configuration, source, checksum) VALUES ('old', 'old', '1.0.0', '{}', '', '')`,
		`INSERT INTO tasker.tasks (task_uuid, template_uuid, namespace, name, version, state, state_since, context, correlation_id, created_at, updated_at)
		SELECT format('01800000-0000-7000-8000-%s', lpad(n::text, 12, '0'))::uuid, template_uuid, namespace, name, version, s.state, o.ended, '{}', '', o.ended, o.ended
		FROM tasker.task_templates, generate_series(1, 400) n, unnest(ARRAY['complete', 'cancelled']) WITH ORDINALITY s (state, ordinal), (SELECT now() - interval '400 days') o (ended)
		WHERE n % 2 = ordinal - 1`,
		`CREATE FUNCTION public.slowly() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.5); RETURN OLD; END'`,
		`CREATE TRIGGER slow BEFORE DELETE ON tasker.tasks FOR EACH ROW EXECUTE FUNCTION public.slowly()`,
	} {
		if _, err := owner.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	o := options(database.URL)
	o.Config.Database.MaxConnections, o.Config.Auth.Mode = 8, config.AuthRequired
	o.Config.Retention.FinishedDays = 30
	s := start(t, o)
	c, err := client.New(s.url, client.WithHTTPClient(&http.Client{Transport: &http.Transport{}, Timeout: patience}), client.WithToken(bootstrap(t, o.Config.Database.URL)))
	if err != nil {
		t.Fatal(err)
	}
	registered(t, c, "now")
	await(t, "tasks to be removed", func() bool {
		return counted(t, owner, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'`) > 0
	})
	beside := 0
	for round := range 3 {
		task, err := c.CreateTask(t.Context(), apiv1.CreateTask{Namespace: "now", Name: "one", StartAfterSeconds: 1})
		if err != nil {
			t.Fatal(err)
		}
		id := task.UUID
		created := time.Now()
		await(t, "the start", func() bool {
			asked := time.Now()
			got, err := c.Task(t.Context(), id)
			if took := time.Since(asked); err != nil || took > 45*time.Second {
				t.Fatalf("round %d: a request took %v: %v", round, took, err)
			}
			return got.State != tasker.TaskPending
		})
		if took := time.Since(created); took > 45*time.Second {
			t.Errorf("round %d: a task that was to start after 1 s did after %v", round, took)
		}
		beside += counted(t, owner, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'
			AND query_start < (SELECT max(created_at) FROM tasker.tasks WHERE namespace = 'now')`)
	}
	if beside == 0 {
		t.Error("no task was started while others were being removed")
	}
	if n := counted(t, owner, `SELECT count(*) FROM tasker.deferred_work`); n > 0 {
		t.Errorf("work of %d rows is set aside", n)
	}
}
