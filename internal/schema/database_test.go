package schema_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
	"tasker.example/tasker/internal/pgtest"
)

// migrated is a database with the schema of this program.
func migrated(t *testing.T) *findPosition {
	t.Helper()
	db := pgtest.New(t)
	p := &findPosition{T: t, db: db, url: db.AdminURL}
	p.conn = p.connect()
	return p
}

func (p *findPosition) texts(sql string, args ...any) []string {
	p.Helper()
	rows, err := p.conn.Query(p.Context(), sql, args...)
	p.Must(err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	p.Must(err)
	return list
}

// The database's copy of the ways between resting states is that of package core.
func TestSettlePaths(t *testing.T) {
	t.Parallel()
	var want []string
	for _, from := range core.Resting() {
		for _, to := range core.Resting() {
			if from == to {
				continue
			}
			for i, e := range core.SettlePath(from, to) {
				want = append(want, fmt.Sprintf("%s > %s %d: %s -%s-> %s", from, to, i+1, e.From, e.Event, e.To))
			}
		}
	}
	slices.Sort(want)
	got := migrated(t).texts(`SELECT format('%s > %s %s: %s -%s-> %s', rest_from, rest_to, ordinal, from_state, event, to_state) AS line
		FROM tasker.task_settle_paths`)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTheDatabaseKnowsTheStates(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	for _, tt := range []struct {
		constraint string
		want       []string
	}{
		{"task_rests_only_where_it_may", names(core.Resting())},
		{"step_has_all_of_its_state", names(tasker.StepStates())},
		{"step_has_all_of_its_type", append(
			names([]tasker.Backoff{tasker.ExponentialBackoff, tasker.LinearBackoff, tasker.ConstantBackoff}),
			names([]tasker.StepType{tasker.StandardStep, tasker.ExternalStep, tasker.WaitStep, tasker.ChildStep, tasker.MapStep})...,
		)},
	} {
		got := p.texts(`
			SELECT DISTINCT name
			FROM pg_constraint, regexp_matches(pg_get_constraintdef(oid), '''{?([a-z_,]+)}?''', 'g') AS m, string_to_table(m[1], ',') AS name
			WHERE conname = $1`, tt.constraint)
		slices.Sort(got)
		slices.Sort(tt.want)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %s", tt.constraint, diff)
		}
	}
	for enum, want := range map[string][]string{
		"dlq_reason": names(tasker.Reasons()), "dlq_resolution_status": names(tasker.ResolutionStatuses()),
	} {
		got := p.texts(`SELECT enumlabel::text FROM pg_enum WHERE enumtypid = ('tasker.' || $1)::regtype`, enum)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", enum, diff)
		}
	}
}

func names[S ~string](list []S) []string {
	var out []string
	for _, s := range list {
		out = append(out, string(s))
	}
	slices.Sort(out)
	return out
}

// Each query lists objects that violate a rule of the schema.
func TestEveryObjectFollowsTheRules(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	for rule, violations := range map[string]string{
		"has a COMMENT": `
			SELECT relname::text FROM pg_class
			WHERE relnamespace = 'tasker'::regnamespace AND relkind IN ('r', 'v') AND obj_description(oid, 'pg_class') IS NULL
			UNION ALL
			SELECT proname::text FROM pg_proc
			WHERE pronamespace = 'tasker'::regnamespace AND obj_description(oid, 'pg_proc') IS NULL
			UNION ALL
			SELECT typname::text FROM pg_type
			WHERE typnamespace = 'tasker'::regnamespace AND typtype = 'e' AND obj_description(oid, 'pg_type') IS NULL`,
		"has a comment that refers to no other document": `
			SELECT description FROM pg_description
			WHERE description ~* '\mseeds?\M|design\.md'
				AND (classoid, objoid) IN (
					SELECT 'pg_class'::regclass::oid, oid FROM pg_class WHERE relnamespace = 'tasker'::regnamespace
					UNION ALL SELECT 'pg_proc'::regclass::oid, oid FROM pg_proc WHERE pronamespace = 'tasker'::regnamespace
					UNION ALL SELECT 'pg_type'::regclass::oid, oid FROM pg_type WHERE typnamespace = 'tasker'::regnamespace
				)`,
		"belongs to the role that migrates": `
			SELECT format('%s owns %s', pg_get_userbyid(o.owner), o.name)
			FROM (
				SELECT relowner AS owner, relname::text AS name FROM pg_class WHERE relnamespace = 'tasker'::regnamespace
				UNION ALL SELECT proowner, proname::text FROM pg_proc WHERE pronamespace = 'tasker'::regnamespace
				UNION ALL SELECT typowner, typname::text FROM pg_type WHERE typnamespace = 'tasker'::regnamespace
				UNION ALL SELECT nspowner, nspname::text FROM pg_namespace WHERE nspname = 'tasker'
			) o
			WHERE pg_get_userbyid(o.owner) <> '` + pgtest.MigrateRole + `'`,
		"can be read by servers": `
			SELECT relname::text FROM pg_class
			WHERE relnamespace = 'tasker'::regnamespace AND relkind IN ('r', 'p', 'v', 'm')
				AND NOT has_table_privilege('` + pgtest.ServerRole + `', oid, 'SELECT')`,
	} {
		if got := p.texts(violations); len(got) > 0 {
			t.Errorf("not every object %s: %q", rule, got)
		}
	}
}

func TestFunctions(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	for sql, want := range map[string]string{
		`dlq_base_priority('dependency_cycle_detected')`:                    "1000",
		`dlq_base_priority('max_retries_exceeded')`:                         "500",
		`dlq_base_priority('staleness_timeout')`:                            "100",
		`dlq_base_priority('worker_unavailable')`:                           "50",
		`dlq_base_priority('manual_dlq')`:                                   "10",
		`substr(uuid_generate_v7()::text, 15, 1)`:                           "7",
		`(substr(uuid_generate_v7()::text, 20, 1) IN ('8', '9', 'a', 'b'))`: "true",
	} {
		t.Run(sql, func(t *testing.T) {
			if got := p.text(`SELECT (` + qualified(sql) + `)::text`); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
	for _, c := range tasker.Causes() {
		if got := p.text(fmt.Sprintf(`SELECT tasker.dlq_base_priority('%s')::text`, c.Reason)); got != fmt.Sprint(c.BasePriority) {
			t.Errorf("the database gives %s the priority %s, the program %d", c.Reason, got, c.BasePriority)
		}
		if got := p.text(fmt.Sprintf(`SELECT tasker.dlq_severity('%s', '%s')`, c.Reason, c.Code)); got != string(c.Severity) {
			t.Errorf("the database gives %s, %s the severity %s, the program %s", c.Reason, c.Code, got, c.Severity)
		}
	}
	if got, want := p.text(`SELECT tasker.dlq_severity('manual_dlq', 'of a newer program')`), tasker.CauseOf(tasker.ManualDLQ, "of a newer program").Severity; got != string(want) {
		t.Errorf("an unknown code has the severity %s, want %s", got, want)
	}
	ids := p.texts(`SELECT tasker.uuid_generate_v7()::text FROM generate_series(1, 3) n, LATERAL pg_sleep(0.002 * n)`)
	if !slices.IsSorted(ids) {
		t.Errorf("ids are not in the order of their making: %v", ids)
	}
}

// qualified names our functions in full, as callers without a search path do.
func qualified(sql string) string {
	for _, f := range []string{"dlq_base_priority", "uuid_generate_v7"} {
		sql = strings.ReplaceAll(sql, f+"(", "tasker."+f+"(")
	}
	return sql
}

func TestATemplatesThresholdComesBeforeTheServers(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	for template, want := range map[string]string{
		`{}`: "01:00:00 00:30:00 00:30:00 none",
		`{"max_waiting_for_dependencies_minutes": 7}`: "00:07:00 00:30:00 00:30:00 none",
		`{"max_waiting_for_retry_minutes": 8}`:        "01:00:00 00:08:00 00:30:00 none",
		`{"max_steps_in_process_minutes": 9}`:         "01:00:00 00:30:00 00:09:00 none",
	} {
		got := p.text(`
			SELECT string_agg(coalesce(tasker.staleness_threshold(s.state, tt, st)::text, 'none'), ' ' ORDER BY s.place)
			FROM tasker.staleness_thresholds st,
				unnest('{waiting_for_dependencies,waiting_for_retry,steps_in_process,error}'::text[]) WITH ORDINALITY AS s (state, place),
				(SELECT (jsonb_populate_record(NULL::tasker.task_templates, '` + template + `')).*) tt`)
		if got != want {
			t.Errorf("thresholds with %s are %s, want %s", template, got, want)
		}
	}
}

const oneTask = `
	INSERT INTO tasker.task_templates (namespace, name, version, configuration, source, checksum) VALUES ('a', 'b', '1.0.0', '{}', '', '');
	INSERT INTO tasker.tasks (task_uuid, template_uuid, namespace, name, version, state, state_since, warn_at, stale_at, context, correlation_id, created_at, updated_at)
	SELECT tasker.uuid_generate_v7(), template_uuid, 'a', 'b', '1.0.0', 'steps_in_process', now() - interval '1 hour',
		now() - interval '36 minutes', now() - interval '30 minutes', '{}', '', now() - interval '2 hours', now()
	FROM tasker.task_templates;`

func TestEvidenceNeverChanges(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	p.exec(oneTask + `SELECT tasker.create_dlq_entry(task_uuid, 'manual_dlq', 'x', 'operator', state) FROM tasker.tasks;`)
	for _, change := range []string{
		"task_uuid = tasker.uuid_generate_v7()", "step_uuid = tasker.uuid_generate_v7()", "original_state = 'x'", "dlq_reason = 'staleness_timeout'",
		"detail_code = 'y'", "detected_by = 'sweep'", "dlq_timestamp = now() - interval '1 day'", "priority_at = now()",
		"task_snapshot = '{}'", "predecessor_uuid = dlq_entry_uuid", "created_at = now() - interval '1 day'",
	} {
		_, err := p.conn.Exec(t.Context(), `UPDATE tasker.tasks_dlq SET `+change, pgx.QueryExecModeSimpleProtocol)
		if err == nil || !strings.Contains(err.Error(), "never changes") {
			t.Errorf("SET %s gives %v", change, err)
		}
	}
	p.exec(`UPDATE tasker.tasks_dlq SET metadata = '{"a": 1}', resolution_notes = 'looking'`)
	if got := p.text(`SELECT coalesce(tasker.create_dlq_entry(task_uuid, 'manual_dlq', 'x', 'operator', state)::text, 'none') FROM tasker.tasks`); got != "none" {
		t.Errorf("a second open investigation was made: %s", got)
	}
}

func TestNothingDependsOnTheTimeZone(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	p.exec(oneTask)
	for _, zone := range []string{"UTC", "Asia/Kathmandu", "America/New_York"} {
		p.exec(`SET TimeZone = '` + zone + `'`)
		if got := p.text(`SELECT format('%s %s %s', round(task_age_minutes), threshold_minutes, round(time_in_state_minutes)) FROM tasker.get_stale_tasks_for_dlq(10)`); got != "120 30.000 60" {
			t.Errorf("in %s: %s", zone, got)
		}
		if got := p.text(`SELECT health_status FROM tasker.v_task_staleness_monitoring`); got != "stale" {
			t.Errorf("in %s the task is %s", zone, got)
		}
	}
	p.refusedAs(`SELECT * FROM tasker.detect_and_transition_stale_tasks(true, 0)`, "p_batch_size must be at least 1, not 0")
	p.refusedAs(`SELECT * FROM tasker.get_task_staleness(-1)`, "p_limit must be at least 1, not -1")
	p.refusedAs(`SELECT * FROM tasker.get_task_staleness(p_health => 'ill')`, "p_health must be stale, warning or healthy, not ill")
	got := p.text(`SELECT action_taken FROM tasker.detect_and_transition_stale_tasks()`)
	if got != "would_transition_to_dlq_and_error" { // a dry run unless told otherwise
		t.Errorf("the sweep says %s", got)
	}
}

const enqueuedStep = `; INSERT INTO tasker.workflow_steps (task_uuid, step_uuid, name, step_type, namespace, handler, priority, state, state_since, parent_uuids, child_uuids,
	parents_open, max_attempts, retryable, backoff, backoff_base_ms, max_backoff_ms, backoff_jitter, created_at, updated_at, expires_at)
	SELECT task_uuid, tasker.uuid_generate_v7(), 'a', 'standard', 'a', 'run', 0, 'enqueued', now(), '{}', '{}', 0, 3, true, 'constant', 1, 1, false, now(), now(), now() FROM tasker.tasks; `

const oneInvestigation = `; SELECT tasker.create_dlq_entry(task_uuid, 'manual_dlq', 'operator_request', 'operator', state) FROM tasker.tasks; `

const heldStep = `; INSERT INTO tasker.holds (hold_uuid, kind, namespace, reason, owner, ends_at) VALUES ('00000000-0000-7000-8000-000000000001', 'manual', 'a', 'r', 'o', now());
	INSERT INTO tasker.held_steps (hold_uuid, namespace, handler, priority, state_since, step_uuid, task_uuid)
	SELECT '00000000-0000-7000-8000-000000000001', namespace, handler, priority, state_since, step_uuid, task_uuid FROM tasker.workflow_steps`

const anOperation = `; INSERT INTO tasker.operations (operation_uuid, request_key, digest, act, selection, planned_by, reason, namespaces, state, items, waves, stop_on_new_cause,
	wave_timeout, expires_at)
	VALUES ('00000000-0000-7000-8000-000000000001', 'k', '', 'reset_for_retry', '{}', 'a', 'r', '{a}', 'running', 1, '{}', true, '1 min', now()); `

const anItem = enqueuedStep + anOperation + `SELECT tasker.create_dlq_entry(task_uuid, 'manual_dlq', 'x', 'operator', state) FROM tasker.tasks;
	INSERT INTO tasker.operation_items (operation_uuid, ordinal, task_uuid, step_uuid, entry_uuid, namespace, expected_state, expected_fence)
	SELECT '00000000-0000-7000-8000-000000000001', 1, s.task_uuid, s.step_uuid, d.dlq_entry_uuid, 'a', 'error', 0
	FROM tasker.workflow_steps s JOIN tasker.tasks_dlq d ON d.task_uuid = s.task_uuid; `

// twoInProgress are steps that workers have, and aLimit is one of them.
const (
	twoInProgress = `INSERT INTO tasker.workflow_steps (task_uuid, step_uuid, name, step_type, namespace, handler, priority, state, state_since, parent_uuids, child_uuids,
		parents_open, max_attempts, retryable, backoff, backoff_base_ms, max_backoff_ms, backoff_jitter, created_at, updated_at, lease_expires_at, last_attempted_at)
		SELECT task_uuid, tasker.uuid_generate_v7(), 'a' || i, 'standard', 'a', 'run', 0, 'in_progress', now(), '{}', '{}', 0, 3, true, 'constant', 1, 1, false, now(), now(), now(), clock_timestamp() + interval '1 s'
		FROM tasker.tasks, generate_series(1, 2) i; `
	aLimit = `INSERT INTO tasker.limits (kind, namespace, name, max_in_progress, by_template, changed_by) VALUES ('handler', 'a', 'run', 1, false, 'ann');
		INSERT INTO tasker.limit_keys (limit_id, key) SELECT limit_id, '' FROM tasker.limits; `
)

const aSchedule = `INSERT INTO tasker.schedules (schedule_uuid, namespace, name, template_name, every_s, overlap, catch_up, start_within_s, anchor, next_at, fire_at, created_by)
	VALUES ('00000000-0000-7000-8000-000000000003', 'a', 'a', 'a', 60, 'skip', 'last', 60, now(), now() + interval '1 hour', now() + interval '1 hour', 'ann'); `

// The check that runs after every test finds what it is for.
func TestViolationsAreFound(t *testing.T) {
	t.Parallel()
	for want, damage := range map[string]string{
		"task is not where its history ends": ``,
		"illegal move of a task":             `INSERT INTO tasker.task_history (task_uuid, from_state, to_state, event, created_at) SELECT task_uuid, 'pending', 'steps_in_process', 'leap', now() FROM tasker.tasks`,
		"gap in the history of a task":       `INSERT INTO tasker.task_history (task_uuid, from_state, to_state, event, created_at) SELECT task_uuid, 'enqueuing_steps', 'steps_in_process', 'start', now() FROM tasker.tasks`,
		"task has no way forward": `INSERT INTO tasker.workflow_steps (task_uuid, step_uuid, name, step_type, namespace, handler, priority, state, state_since, parent_uuids, child_uuids,
			parents_open, max_attempts, retryable, backoff, backoff_base_ms, max_backoff_ms, backoff_jitter, created_at, updated_at)
			SELECT task_uuid, tasker.uuid_generate_v7(), 'a', 'external', 'a', '', 0, 'pending', now(), '{}', '{}', 0, 3, true, 'constant', 1, 1, false, now(), now() FROM tasker.tasks`,
		"step is ready and nobody enqueued it": `INSERT INTO tasker.workflow_steps (task_uuid, step_uuid, name, step_type, namespace, handler, priority, state, state_since, parent_uuids, child_uuids,
			parents_open, max_attempts, retryable, backoff, backoff_base_ms, max_backoff_ms, backoff_jitter, created_at, updated_at)
			SELECT task_uuid, tasker.uuid_generate_v7(), 'a', 'standard', 'a', 'run', 0, 'pending', now(), '{}', '{}', 0, 3, true, 'constant', 1, 1, false, now(), now() FROM tasker.tasks`,
		"answer link was used, and its step waits as before": `INSERT INTO tasker.workflow_steps (task_uuid, step_uuid, name, step_type, namespace, handler, priority, state, state_since, parent_uuids, child_uuids,
			parents_open, max_attempts, retryable, backoff, backoff_base_ms, max_backoff_ms, backoff_jitter, created_at, updated_at)
			SELECT task_uuid, tasker.uuid_generate_v7(), 'a', 'external', 'a', '', 0, 'pending', now(), '{}', '{}', 0, 3, true, 'constant', 1, 1, false, now(), now() FROM tasker.tasks;
			INSERT INTO tasker.answer_links (link_uuid, task_uuid, step_uuid, fence, assignee, digest, created_by, expires_at, used_at)
			SELECT tasker.uuid_generate_v7(), task_uuid, step_uuid, fence, 'ann', sha256('a'), 'bo', now(), now() FROM tasker.workflow_steps`,
		"people are reminded of a step that waits for no answer": enqueuedStep + `UPDATE tasker.workflow_steps SET remind_at = now()`,
		"enqueued step is neither in ready_steps nor put aside":  enqueuedStep + `DELETE FROM tasker.ready_steps`,
		"step is kept by a hold and a limit, or by neither":      enqueuedStep + heldStep + `; UPDATE tasker.held_steps SET limit_key_id = 1`,
		"limit has more steps in progress than it lets be":       twoInProgress + aLimit + `INSERT INTO tasker.limit_slots SELECT 1, task_uuid, step_uuid, fence FROM tasker.workflow_steps`,
		"step in progress has no place of its limit":             twoInProgress + aLimit,
		"step is held and can be claimed":                        enqueuedStep + heldStep,
		"claims do not know that they have to ask":               heldStep + `; DELETE FROM tasker.claim_conditions`,
		"hold has ended and has steps":                           enqueuedStep + heldStep + `; UPDATE tasker.holds SET state = 'ended', blocks = false, ended_at = now()`,
		"hold has ended and awaits an outcome": enqueuedStep + heldStep + `; INSERT INTO tasker.hold_releases (hold_uuid, task_uuid, step_uuid, wave, fence, released_at)
			SELECT hold_uuid, task_uuid, step_uuid, 0, 0, now() FROM tasker.held_steps;
			UPDATE tasker.holds SET state = 'ended', blocks = false, ended_at = now()`,
		"hold let a step go twice at a time": enqueuedStep + heldStep + `; INSERT INTO tasker.hold_releases (hold_uuid, task_uuid, step_uuid, wave, fence, released_at)
			SELECT hold_uuid, task_uuid, step_uuid, 0, 0, now() - make_interval(secs => i) FROM tasker.held_steps, generate_series(1, 2) i`,
		"ready_steps has a step that is not enqueued":   enqueuedStep + `SET session_replication_role = replica; UPDATE tasker.workflow_steps SET state = 'pending', expires_at = NULL`,
		"step has unwritten moves that it has not made": enqueuedStep + `UPDATE tasker.workflow_steps SET unwritten = 3, moves_id = 1`,
		"two moves have one id": `INSERT INTO tasker.task_history (task_uuid, transition_id, from_state, to_state, created_at) OVERRIDING SYSTEM VALUE
			SELECT task_uuid, i, 'pending', 'steps_in_process', now() FROM tasker.tasks, generate_series(1, 2) i`,
		"step moved before its last move": enqueuedStep + `INSERT INTO tasker.step_history (task_uuid, step_uuid, from_state, to_state, event, attempt, created_at, moves_id, enqueued_at)
			SELECT task_uuid, step_uuid, 'enqueued', 'error', 'expire', 1, now() - interval '1 minute', -1, now() FROM tasker.workflow_steps`,
		"lease that nobody would take back": enqueuedStep + `UPDATE tasker.workflow_steps SET state = 'in_progress', expires_at = NULL, lease_expires_at = now();
			UPDATE tasker.claims SET look_at = now() + interval '1 hour'`,
		"investigation is no member of the cases":  oneInvestigation + `DELETE FROM tasker.case_members`,
		"member does not follow its investigation": oneInvestigation + `UPDATE tasker.case_members SET ended_at = now()`,
		"member of no case":                        oneInvestigation + `UPDATE tasker.case_members SET fingerprint = gen_random_uuid()`,
		"resolved case has open investigations": oneInvestigation + `
			INSERT INTO tasker.cases (case_id, namespace, task_name, step_name, dlq_reason, detail_code, error_type, error_pattern, state, state_since, resolved_at, first_seen_at, updated_at)
			SELECT task_uuid, namespace, name, '', 'manual_dlq', 'x', '', '', 'resolved', now(), now(), now(), now() FROM tasker.tasks;
			INSERT INTO tasker.case_fingerprints (fingerprint, case_id, home_case_id, version, error_type, error_pattern, first_seen_at)
			SELECT case_id, case_id, case_id, 1, '', '', now() FROM tasker.cases;
			UPDATE tasker.case_members SET fingerprint = (SELECT case_id FROM tasker.cases)`,
		"instant of a schedule is in two firings": aSchedule + `INSERT INTO tasker.schedule_firings (schedule_uuid, nominal_at, nominal_until, instants, kind, outcome, reason, actor)
			SELECT schedule_uuid, now() - i * interval '1 hour', now() - interval '1 hour' + (2 - i) * interval '1 second', 1 + i, 'clock', 'skipped', 'x', 'system'
			FROM tasker.schedules, generate_series(2, 3) i; UPDATE tasker.schedule_firings SET instants = 2`,
		"schedule has a firing that is still to come": aSchedule + `INSERT INTO tasker.schedule_firings (schedule_uuid, nominal_at, nominal_until, kind, outcome, reason, actor)
			SELECT schedule_uuid, next_at, next_at, 'clock', 'skipped', 'x', 'system' FROM tasker.schedules`,
		"instant that was made up for has two tasks": aSchedule + `INSERT INTO tasker.schedule_firings (schedule_uuid, nominal_at, nominal_until, kind, outcome, task_uuid, actor)
			SELECT schedule_uuid, now(), now(), kind, 'started', gen_random_uuid(), 'system' FROM tasker.schedules, unnest('{clock,backfill}'::text[]) kind`,
		"task and firing of a schedule differ": aSchedule + `UPDATE tasker.tasks SET schedule_uuid = (SELECT schedule_uuid FROM tasker.schedules)`,
		"schedule is not told that its task has ended": aSchedule + `INSERT INTO tasker.schedule_firings (schedule_uuid, nominal_at, nominal_until, kind, outcome, task_uuid, task_open, actor)
			SELECT h.schedule_uuid, now(), now(), 'clock', 'started', t.task_uuid, true, 'system' FROM tasker.schedules h, tasker.tasks t;
			UPDATE tasker.tasks SET schedule_uuid = (SELECT schedule_uuid FROM tasker.schedules), state = 'complete', stale_at = NULL, warn_at = NULL, completed_at = now(); DELETE FROM tasker.schedule_signals`,
		"schedule has no way forward": aSchedule + `UPDATE tasker.schedules SET awaits_task = gen_random_uuid(), next_at = NULL, fire_at = NULL`,
		"due time of a task that has ended is open": enqueuedStep + `INSERT INTO tasker.deadlines (task_uuid, step_uuid, namespace, due_at, warn_at, look_at, investigate, orders, source)
			SELECT task_uuid, '00000000-0000-0000-0000-000000000000', namespace, now(), now(), now(), false, false, 'template' FROM tasker.tasks`,
		"task that has ended is still to be begun by an instant": enqueuedStep + `INSERT INTO tasker.task_starts SELECT task_uuid, now() FROM tasker.tasks`,
		"unique key and open task differ":                        enqueuedStep + `UPDATE tasker.tasks SET options = '{"unique_key": "k"}'`,
		"debounce key and pending task differ":                   enqueuedStep + `INSERT INTO tasker.debounced_tasks SELECT namespace, name, 'k', task_uuid, now() FROM tasker.tasks`,
		"instant waits for no task": aSchedule + `INSERT INTO tasker.schedule_firings (schedule_uuid, nominal_at, nominal_until, kind, outcome, reason, actor)
			SELECT schedule_uuid, now(), now(), 'clock', 'queued', 'x', 'system' FROM tasker.schedules`,
		"items of an operation do not add up": anOperation,
		"step was moved twice by one operation": enqueuedStep + `INSERT INTO tasker.step_history (task_uuid, step_uuid, from_state, to_state, event, attempt, created_at, operation_uuid)
			SELECT task_uuid, step_uuid, 'error', 'pending', 'reset_for_retry', 1, now(), task_uuid FROM tasker.workflow_steps, generate_series(1, 2)`,
		"item and act of an operation differ":                       anItem + `UPDATE tasker.operation_items SET state = 'released', released_at = now()`,
		"item is verified without an attempt after its release":     anItem + `UPDATE tasker.operation_items SET state = 'verified', released_at = now(), ended_at = now(), released_fence = 1`,
		"verified item whose investigation is open":                 anItem + `UPDATE tasker.operation_items SET state = 'verified', released_at = now(), ended_at = now()`,
		"operation has come to its end with open items":             anItem + `UPDATE tasker.operations SET state = 'aborted', ended_at = now(), settled_at = now()`,
		"investigation without the row that tells of its beginning": `SELECT tasker.create_dlq_entry(task_uuid, 'manual_dlq', 'x', 'operator', state) FROM tasker.tasks; ALTER TABLE tasker.tasks_dlq_history DISABLE TRIGGER history_never_changes; DELETE FROM tasker.tasks_dlq_history`,
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			p := migrated(t)
			p.exec(`SET tasker_test.follow = 'on'`)
			p.exec(oneTask + damage)
			found, err := pgtest.Violations(context.Background(), p.url) //nolint:usetesting // as it is called after a test
			p.Must(err)
			if !slices.ContainsFunc(found, func(v string) bool { return strings.HasPrefix(v, want) }) {
				t.Errorf("found %q, want %q", found, want)
			}
		})
	}
}

// A task that goes to error with its investigation is looked into already, and its
// row says so at once; one that goes without is found again.
func TestATaskThatTheSweepMovesIsWrittenOnce(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	p.exec(oneTask + `
		CREATE TABLE public.written (state text, attend_by timestamptz);
		CREATE FUNCTION public.write() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.written VALUES (NEW.state, NEW.attend_by); RETURN NULL; END $$;
		CREATE TRIGGER written AFTER UPDATE ON tasker.tasks FOR EACH ROW EXECUTE FUNCTION public.write();`)
	const move = `SELECT tasker.transition_stale_task_to_error(task_uuid, state, state_since, 'alone') FROM tasker.tasks`
	const written = `SELECT format('%s %s', state, attend_by IS NOT NULL) FROM public.written`
	p.exec(`BEGIN; ` + move)
	if diff := cmp.Diff([]string{"error t"}, p.texts(written)); diff != "" {
		t.Error("alone: " + diff)
	}
	p.exec(`ROLLBACK`)
	if got := p.text(`SELECT action_taken FROM tasker.detect_and_transition_stale_tasks(false)`); got != "transitioned_to_dlq_and_error" {
		t.Fatal(got)
	}
	if diff := cmp.Diff([]string{"error f"}, p.texts(written)); diff != "" {
		t.Error("with its investigation: " + diff)
	}
}
