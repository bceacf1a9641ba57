package postgres

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
)

// The cost of the feed and of emission pages does not grow with the history.
func TestEventsAreReadFromTheirIndexes(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{})
	if _, err := admin(t, db).Exec(t.Context(), history, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	if _, err := admin(t, db).Exec(t.Context(), `
		INSERT INTO tasker.outbox (topic, task_uuid, dlq_entry_uuid, data) SELECT 'dlq.entry.created', task_uuid, dlq_entry_uuid, '{}' FROM tasker.tasks_dlq;
		INSERT INTO tasker.emission_sinks (sink) VALUES ('a'), ('b');
		INSERT INTO tasker.emissions (sink, position, event_uuid, task_uuid, state, published_at)
		SELECT s.sink, o.position, o.event_uuid, o.task_uuid, 'published', now() FROM tasker.outbox o CROSS JOIN tasker.emission_sinks s;
		ANALYZE;`, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ sql, index string }{
		"feedBounds":     {statement("feedBounds"), "outbox_by_transaction"},
		"feedEvents":     {statement("feedEvents"), "outbox_pkey"},
		"splitTasks":     {statement("splitTasks"), "outbox_by_transaction"},
		"measureStretch": {statement("outboxStats"), "outbox_pkey"},
		"emissions":      {statement("emissions"), "emissions_pkey"},
		"pending":        {statement("emissions"), "emissions_pending"},
		"set aside":      {statement("emissions"), "emissions_set_aside"},
		"of a topic":     {statement("emissionsOfTopic"), "outbox_by_topic"},
		"one event":      {statement("emissionsOf"), "emissions_by_position"},
	} {
		t.Run(name, func(t *testing.T) {
			plan := explain(t, db, tt.sql)
			if strings.Contains(plan, "Seq Scan on outbox") || strings.Contains(plan, "Seq Scan on emissions ") || !strings.Contains(plan, tt.index) {
				t.Errorf("is not read from %s:\n%s", tt.index, plan)
			}
		})
	}
	if _, _, err := db.Emissions(t.Context(), tasker.EmissionFilter{State: "' OR true --", Limit: 1}); tasker.CodeOf(err) != tasker.Invalid {
		t.Errorf("an unknown state: %v, want Invalid", err)
	}
}
