package postgres

import (
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// The cost of an inbox page depends on its size, not on the number of waiting steps or the assignee.
func TestTheInboxIsReadByIndex(t *testing.T) {
	t.Parallel()
	db := openNew(t, Options{})
	for _, sql := range []string{
		`INSERT INTO tasker.human_steps (task_uuid, step_uuid, namespace, task_name, step_name, assignee, due_at, waiting)
			SELECT ('00000000-0000-7000-8000-' || lpad(i::text, 12, '0'))::uuid, ('00000000-0000-7000-9000-' || lpad(i::text, 12, '0'))::uuid, 'space-' || i % 20, 'template-' || i % 7,
				'answer', CASE WHEN i % 3 = 0 THEN '' WHEN i % 1000 = 1 THEN 'ann' ELSE 'bob' END, CASE WHEN i % 2 = 0 THEN now() + i * interval '1 second' ELSE 'infinity' END, i % 10 > 0
			FROM generate_series(1, 50000) i`,
		`ANALYZE tasker.human_steps`,
	} {
		execute(t, db, sql)
	}
	conn, err := db.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	soon, late := time.Now(), time.Now().Add(time.Hour)
	for name, f := range map[string]tasker.InboxFilter{
		"all": {}, "assignee": {Assignees: []string{"ann"}}, "assignees": {Assignees: []string{"ann", "bob", ""}}, "nobody": {Assignees: []string{"carol"}},
		"template": {Template: "template-3"}, "template and assignee": {Template: "template-3", Assignees: []string{"ann"}}, "namespace": {Namespace: "space-3"},
		"after": {After: &tasker.InboxCursor{DueAt: &late}}, "without timeout": {After: &tasker.InboxCursor{}}, "due": {DueBefore: &late}, "overdue": {Overdue: true, DueBefore: &soon},
	} {
		f.Limit = 20
		var spaces []string
		if f.Namespace != "" {
			spaces = []string{f.Namespace}
		}
		n, plan := pages(t.Context(), t, conn.Conn(), statement("inbox"), newInboxArgs(f, spaces)...)
		if n > 1000 || strings.Contains(plan, "Seq Scan on human_steps") {
			t.Errorf("%s reads %d pages:\n%s", name, n, plan)
		}
	}
	if list, _, err := db.Inbox(access.WithScope(t.Context(), access.NamespaceScope("attic")), tasker.InboxFilter{Limit: 1}); err != nil || len(list) > 0 {
		t.Errorf("%v, %v", list, err)
	}
}
