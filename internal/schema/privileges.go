package schema

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// serverPrivileges lists the privileges of the server for each table; a test requires an entry for
// every table. Remove a privilege one release after the last server that uses it, because servers
// of the previous version use the migrated database. History tables have no UPDATE, and DELETE
// only where the retention of tasks removes history too. TRUNCATE is never granted. UPDATE(a,b) is
// limited to these columns.
var serverPrivileges = map[string]string{
	"access_changes":      "SELECT INSERT UPDATE DELETE", // UPDATE for row locks
	"access_revision":     "SELECT",                      // a view
	"answer_links":        "SELECT INSERT UPDATE(used_at,revoked_at,revoked_by) DELETE",
	"api_key_secrets":     "SELECT INSERT UPDATE(ends_at)",
	"api_keys":            "SELECT INSERT UPDATE(last_used_at,revoked_at,revoked_by)",
	"audit_events":        "SELECT INSERT",
	"attribute_names":     "SELECT INSERT UPDATE",
	"breaker_counts":      "SELECT INSERT UPDATE DELETE",
	"case_fingerprints":   "SELECT INSERT UPDATE",
	"case_history":        "SELECT INSERT",
	"case_members":        "SELECT INSERT UPDATE",
	"case_refinements":    "SELECT INSERT UPDATE",
	"cases":               "SELECT INSERT UPDATE",
	"child_signals":       "SELECT INSERT DELETE",
	"namespaces":          "SELECT INSERT UPDATE DELETE",
	"human_step_history":  "SELECT INSERT DELETE",
	"human_steps":         "SELECT INSERT UPDATE DELETE",
	"step_checkpoints":    "SELECT INSERT UPDATE DELETE",
	"claim_conditions":    "SELECT INSERT DELETE",
	"claims":              "SELECT INSERT UPDATE DELETE", // UPDATE for row locks
	"debounced_tasks":     "SELECT INSERT UPDATE DELETE",
	"deferred_work":       "SELECT INSERT UPDATE DELETE",
	"deadlines":           "SELECT INSERT UPDATE DELETE",
	"due_queues":          "SELECT INSERT DELETE",
	"dispatch_canary":     "SELECT UPDATE",
	"dispatch_outbox":     "SELECT INSERT UPDATE DELETE",
	"dlq_base_priorities": "SELECT UPDATE",
	"dlq_totals":          "SELECT INSERT UPDATE",
	"emission_sinks":      "SELECT INSERT UPDATE",
	"emissions":           "SELECT INSERT UPDATE DELETE",
	"incident_cases":      "SELECT INSERT UPDATE",
	"incidents":           "SELECT INSERT UPDATE",
	"map_inputs":          "SELECT INSERT DELETE",
	"held_steps":          "SELECT INSERT UPDATE DELETE",
	"hold_history":        "SELECT INSERT",
	"hold_releases":       "SELECT INSERT UPDATE",
	"holds":               "SELECT INSERT UPDATE DELETE", // DELETE of old ones
	"lease_key":           "SELECT",
	"queues":              "SELECT INSERT UPDATE DELETE",
	"limit_keys":          "SELECT INSERT UPDATE DELETE",
	"limit_queues":        "SELECT INSERT UPDATE DELETE",
	"limit_slots":         "SELECT INSERT UPDATE DELETE",
	"limits":              "SELECT INSERT UPDATE DELETE",
	"task_limits":         "SELECT INSERT UPDATE DELETE",
	"message_emissions":   "SELECT INSERT UPDATE DELETE", // DELETE of old ones
	"messages":            "SELECT INSERT UPDATE DELETE",
	"operation_items": "SELECT INSERT UPDATE(state,outcome,tries,wave,round,released_fence,released_at,failed_at," +
		"failure_cause,failure_text,made_task,ended_at) DELETE", // DELETE with old operations
	"operations":                     "SELECT INSERT UPDATE DELETE",
	"operator_requests":              "SELECT INSERT UPDATE DELETE",             // UPDATE for row locks
	"outbox":                         "SELECT INSERT UPDATE(written_in) DELETE", // DELETE of events of tasks
	"ready_steps":                    "SELECT INSERT UPDATE DELETE",             // as claims
	"redaction":                      "SELECT UPDATE",
	"rejected_reports":               "SELECT INSERT DELETE",
	"schedule_firings":               "SELECT INSERT UPDATE DELETE", // DELETE of old ones
	"schedule_history":               "SELECT INSERT",
	"schedule_signals":               "SELECT INSERT UPDATE DELETE", // UPDATE for row locks
	"schedules":                      "SELECT INSERT UPDATE DELETE", // DELETE of those deleted long ago
	"schema_migrations":              "SELECT",
	"sessions":                       "SELECT INSERT UPDATE(seen_at,ended_at) DELETE",
	"sign_ins":                       "SELECT INSERT UPDATE DELETE", // UPDATE for row locks
	"staleness_thresholds":           "SELECT UPDATE",
	"step_history":                   "SELECT INSERT DELETE",
	"step_history_transition_id_seq": "USAGE",
	"task_requests":                  "SELECT INSERT UPDATE(refused_at,error_code,error_message) DELETE",
	"task_settle_paths":              "SELECT",
	"task_templates":                 "SELECT INSERT UPDATE DELETE",
	"template_handlers":              "SELECT INSERT DELETE",
	"task_attributes":                "SELECT INSERT UPDATE DELETE",
	"task_history":                   "SELECT INSERT DELETE",
	"task_starts":                    "SELECT INSERT UPDATE DELETE",
	"task_transitions":               "SELECT", // a view
	"tasks":                          "SELECT INSERT UPDATE DELETE",
	"tasks_dlq":                      "SELECT INSERT UPDATE",
	"tasks_dlq_history":              "SELECT INSERT",
	"unique_tasks":                   "SELECT INSERT UPDATE DELETE",
	"workers":                        "SELECT INSERT UPDATE DELETE",
	"workflow_step_transitions":      "SELECT",
	"workflow_steps":                 "SELECT INSERT UPDATE DELETE",
}

// hiddenFromReader lists tables and columns that the reader must not read: keys, data of users and
// free text. All columns of type json, jsonb and bytea are hidden as well, because they contain
// data of users.
var hiddenFromReader = []string{
	"answer_links", "api_key_secrets", "case_history.notes", "case_members.error_fingerprint", "case_members.error_message",
	"case_refinements.literal", "case_refinements.reason",
	"lease_key", "map_inputs.omitted", "operator_requests", "sessions", "sign_ins", "redaction", "step_history_transition_id_seq",
	"deferred_work.last_error", "emission_sinks.last_error", "emissions.last_error", "message_emissions.last_error", "rejected_reports.message",
	"task_attributes.number_value", "task_attributes.text_value", "task_attributes.time_value", "task_templates.source",
	"task_templates.retired_reason", "step_history.reason", "task_history.reason", "task_transitions.reason",
	"task_requests.error_code", "task_requests.error_message", "task_requests.idempotency_key", "task_requests.reason",
	"tasks.idempotency_key", "tasks.reason", "tasks_dlq.resolution_notes", "tasks_dlq_history.notes",
	"v_dlq_investigation_queue.error_message", "workflow_step_transitions.reason",
	"human_step_history.assignee", "human_step_history.reason", "human_steps.assignee",
	"schedule_firings.reason", "schedule_history.reason", "schedules.paused_reason",
	"debounced_tasks.debounce_key", "unique_tasks.unique_key", "operations.reason", "operations.request_key",
	"operations.causes", "operations.tolerated_causes", "operation_items.failure_text", "operation_items.failure_cause",
	"breaker_counts.cause", "breaker_counts.cause_key", "holds.reason", "holds.cause", "holds.cause_key", "hold_history.reason", "hold_releases.failure",
	"limit_keys.key", "task_limits.key",
}

// privilege is a privilege that a role has or should have. An empty grantee means PUBLIC.
type privilege struct {
	Kind      string `db:"kind"` // in the form for GRANT
	Object    string `db:"object"`
	Column    string `db:"col"`
	Grantee   string `db:"grantee"`
	Privilege string `db:"privilege"`
}

// part is an object of the schema, or a column, on which privileges are granted.
type part struct {
	Kind   string `db:"kind"`
	Object string `db:"object"` // in the form for GRANT
	Name   string `db:"name"`   // without schema and arguments
	Column string `db:"col"`    // of a table
	View   bool   `db:"is_view"`
	Open   bool   `db:"is_open"` // a column whose type cannot contain payloads, or a function that writes nothing
}

// wantedPrivileges returns the privileges that the roles should have on the existing parts.
func (r roles) wantedPrivileges(parts []part) map[privilege]bool {
	want := map[privilege]bool{}
	add := func(p part, column, grantee string, list ...string) {
		for _, one := range list {
			want[privilege{p.Kind, p.Object, column, grantee, one}] = true
		}
	}
	for _, p := range parts {
		switch {
		case p.Kind == "SCHEMA":
			add(p, "", r.Server, "USAGE")
			add(p, "", r.Reader, "USAGE")
		case p.Kind == "ROUTINE":
			add(p, "", r.Server, "EXECUTE")
			if p.Open {
				add(p, "", r.Reader, "EXECUTE")
			}
		case p.View && serverPrivileges[p.Name] == "":
			add(p, "", r.Server, "SELECT")
			fallthrough
		default:
			list, known := serverPrivileges[p.Name]
			elsewhere := func(c columnPrivilege) bool { return c.column != "" && c.column != p.Column }
			for _, c := range slices.DeleteFunc(parsePrivileges(list), elsewhere) { // skips columns that do not exist yet
				add(p, c.column, r.Server, c.name)
			}
			if (known || p.View) && p.Open && !slices.Contains(hiddenFromReader, p.Name) &&
				!slices.Contains(hiddenFromReader, p.Name+"."+p.Column) {
				add(p, p.Column, r.Reader, "SELECT")
			}
		}
	}
	return want
}

// columnPrivilege is a privilege on a column, or on the whole table if column is empty.
type columnPrivilege struct{ name, column string }

// parsePrivileges parses an entry of serverPrivileges and sorts it by name.
func parsePrivileges(list string) []columnPrivilege {
	var found []columnPrivilege
	for text := range strings.FieldsSeq(list) {
		name, columns, _ := strings.Cut(strings.TrimSuffix(text, ")"), "(")
		for column := range strings.SplitSeq(columns, ",") {
			found = append(found, columnPrivilege{name, column})
		}
	}
	slices.SortStableFunc(found, func(a, b columnPrivilege) int { return strings.Compare(a.name, b.name) })
	return found
}

// findMissing returns the statements that give the roles exactly the privileges that they should
// have. It returns none for privileges that are correct already, because concurrent transactions
// may update the same rows of the catalog.
func (r roles) findMissing(ctx context.Context, q querier) ([]string, error) {
	parts, err := collect[part](ctx, q, statement("findParts"))
	if err != nil {
		return nil, fmt.Errorf("read the objects of privileges: %w", err)
	}
	list, err := collect[privilege](ctx, q, statement("findPrivileges"), r.Server, r.Reader)
	if err != nil {
		return nil, fmt.Errorf("read the privileges of the roles: %w", err)
	}
	has := map[privilege]bool{}
	for _, p := range list {
		has[p] = true
	}
	want := r.wantedPrivileges(parts)
	return append(privilegeStatements("REVOKE %s ON %s %s FROM %s", has, want), privilegeStatements("GRANT %s ON %s %s TO %s", want, has)...), nil
}

// privilegeStatements returns the statements, one per object and role, for the privileges that are
// in from but not in without.
func privilegeStatements(format string, from, without map[privilege]bool) []string {
	grouped := map[privilege][]string{} // by object and role
	for p := range from {
		if without[p] {
			continue
		}
		key := privilege{Kind: p.Kind, Object: p.Object, Grantee: p.Grantee}
		text := p.Privilege
		if p.Column != "" {
			text += " (" + pgx.Identifier{p.Column}.Sanitize() + ")"
		}
		grouped[key] = append(grouped[key], text)
	}
	var list []string
	for _, key := range slices.SortedFunc(maps.Keys(grouped), func(a, b privilege) int {
		return cmp.Or(cmp.Compare(a.Grantee, b.Grantee), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Object, b.Object))
	}) {
		grantee := "PUBLIC"
		if key.Grantee != "" {
			grantee = pgx.Identifier{key.Grantee}.Sanitize()
		}
		slices.Sort(grouped[key])
		list = append(list, fmt.Sprintf(format, strings.Join(grouped[key], ", "), key.Kind, key.Object, grantee))
	}
	return list
}

// grant gives the roles of the database exactly the privileges that they should have. It does
// nothing if the database has no roles.
func grant(ctx context.Context, tx pgx.Tx) error {
	r, found, err := findRoles(ctx, tx.Conn())
	if err != nil || !found {
		return err
	}
	for range 2 { // revoking from a table also revokes from its columns
		list, err := r.findMissing(ctx, tx)
		if err != nil || len(list) == 0 {
			return err
		}
		if _, err := tx.Exec(ctx, strings.Join(list, ";\n"), pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("grant privileges to %s and %s: %w", r.Server, r.Reader, err)
		}
	}
	return nil
}

// querier is a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func collect[T any](ctx context.Context, q querier, sql string, args ...any) ([]T, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[T])
}

// checkPrivileges returns an error if the user of the connection lacks a privilege that a server
// needs.
func checkPrivileges(ctx context.Context, conn *pgx.Conn) error {
	var tables, columns, privileges []string
	for _, table := range slices.Sorted(maps.Keys(serverPrivileges)) {
		for _, p := range parsePrivileges(serverPrivileges[table]) {
			tables, columns, privileges = append(tables, table), append(columns, p.column), append(privileges, p.name)
		}
	}
	var lacks []string
	err := conn.QueryRow(ctx, statement("missingPrivileges"), tables, columns, privileges).Scan(&lacks)
	if err != nil {
		return fmt.Errorf("check the privileges of the user: %w", err)
	}
	if len(lacks) == 0 {
		return nil
	}
	const shown = 5
	text := strings.Join(lacks[:min(shown, len(lacks))], ", ")
	if more := len(lacks) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return newLackingError(ctx, conn, text)
}

// newLackingError returns the error for a missing privilege, with the remedy.
func newLackingError(ctx context.Context, conn *pgx.Conn, what string) error {
	r, found, err := findRoles(ctx, conn)
	if err != nil {
		return err
	}
	user, err := currentUser(ctx, conn)
	if err != nil {
		return err
	}
	advice := "connect as the owner of the schema, or let a database administrator create roles (tasker migrate roles)"
	if found {
		advice = fmt.Sprintf("run tasker migrate up, and have a database administrator run: GRANT %s TO %s", r.Server, user)
	}
	return fmt.Errorf("%w: %s lacks %s in the schema tasker; %s", ErrPrivileges, user, what, advice)
}
