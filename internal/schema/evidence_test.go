package schema_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"tasker.example/tasker/internal/redact"
)

const oneEntry = oneTask + `SELECT tasker.create_dlq_entry(task_uuid, 'manual_dlq', 'x', 'operator', state, p_actor => 'ann', p_notes => 'why') FROM tasker.tasks;`

func (p *findPosition) refusedAs(sql, words string) {
	p.Helper()
	_, err := p.conn.Exec(p.Context(), sql, pgx.QueryExecModeSimpleProtocol)
	if err == nil || !strings.Contains(err.Error(), words) {
		p.Errorf("%s gives %v, want %q", sql, err, words)
	}
}

func TestRecordsOnlyGrow(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	p.exec(oneEntry)
	p.refusedAs(`UPDATE tasker.tasks_dlq_history SET actor = 'bob'`, "never changes")
	p.refusedAs(`DELETE FROM tasker.tasks_dlq_history`, "never changes")
	p.refusedAs(`TRUNCATE tasker.tasks_dlq_history`, "never changes")
	p.refusedAs(`TRUNCATE tasker.tasks_dlq CASCADE`, "TRUNCATE on tasker.tasks_dlq is refused")
	p.refusedAs(`UPDATE tasker.tasks_dlq SET error_pattern = 'harmless'`, "never changes")
	p.refusedAs(`UPDATE tasker.tasks_dlq SET case_key = dlq_entry_uuid`, "never changes")
	p.refusedAs(`DELETE FROM tasker.tasks_dlq`, "DELETE on tasker.tasks_dlq is refused") // its history refers to it, too
	p.refusedAs(`DELETE FROM tasker.tasks`, "tasks_dlq_task_uuid_fkey")
	p.exec(`UPDATE tasker.tasks_dlq SET resolution_status = 'cancelled', resolved_at = now(), resolved_by = 'ann', resolution_notes = 'done'`)
	p.refusedAs(`UPDATE tasker.tasks_dlq SET resolution_status = 'manually_resolved'`, "never changes")
	p.refusedAs(`UPDATE tasker.tasks_dlq SET resolution_status = 'pending', resolved_at = NULL`, "never changes")
	p.refusedAs(`UPDATE tasker.tasks_dlq SET resolved_at = now() - interval '1 day'`, "never changes")
	p.refusedAs(`INSERT INTO tasker.outbox (topic, task_uuid, dlq_entry_uuid, data) SELECT 'gossip', task_uuid, dlq_entry_uuid, '{}' FROM tasker.tasks_dlq`, "outbox_topic_is_known")
}

// The cause of an investigation is replaced as a whole, by a weightier one, while it
// is open; what it was opened for stays. All else is refused.
func TestACauseIsOnlyRaised(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	p.exec(oneEntry)
	raise := func(reason, priority, original, code string) string {
		return fmt.Sprintf(`UPDATE tasker.tasks_dlq SET dlq_reason = '%s', detail_code = 'y', priority_at = priority_at %s interval '1 minute',
			original_reason = %s, original_detail_code = %s`, reason, priority, original, code)
	}
	for name, sql := range map[string]string{
		"another reason alone":        `UPDATE tasker.tasks_dlq SET dlq_reason = 'max_retries_exceeded'`,
		"another code alone":          `UPDATE tasker.tasks_dlq SET detail_code = 'y'`,
		"another priority alone":      `UPDATE tasker.tasks_dlq SET priority_at = priority_at - interval '1 minute'`,
		"a lighter reason":            raise("max_retries_exceeded", "+", "'manual_dlq'", "'x'"),
		"the same reason":             raise("manual_dlq", "-", "'manual_dlq'", "'x'"),
		"the first reason forgotten":  raise("max_retries_exceeded", "-", "NULL", "'x'"),
		"another first reason":        raise("max_retries_exceeded", "-", "'staleness_timeout'", "'x'"),
		"another first code":          raise("max_retries_exceeded", "-", "'manual_dlq'", "'z'"),
		"another snapshot on the way": raise("max_retries_exceeded", "-", "'manual_dlq'", "'x'") + `, task_snapshot = '{}'`,
		"a reason for one that ends":  raise("max_retries_exceeded", "-", "'manual_dlq'", "'x'") + `, resolution_status = 'cancelled', resolved_at = now(), resolved_by = 'a', resolution_notes = 'n'`,
	} {
		t.Run(name, func(t *testing.T) {
			p := *p
			p.T = t
			p.refusedAs(sql, "never changes")
		})
	}
	p.exec(raise("staleness_timeout", "-", "'manual_dlq'", "'x'"))
	p.refusedAs(raise("max_retries_exceeded", "-", "'staleness_timeout'", "'y'"), "never changes") // twice raised, once opened
	p.exec(raise("max_retries_exceeded", "-", "'manual_dlq'", "'x'"))
	p.refusedAs(raise("staleness_timeout", "+", "'manual_dlq'", "'x'"), "never changes")
}

// What the history says is told, in the same transaction, whoever wrote it.
func TestHistoryIsPublished(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	p.exec(oneEntry + `
		INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, from_status, to_status, notes, metadata)
		SELECT dlq_entry_uuid, e.event, 'ann', 'pending', e.status::tasker.dlq_resolution_status, 'n', '{"a": 1, "Api-Key": "s3cret"}'
		FROM tasker.tasks_dlq, (VALUES ('updated', 'pending'), ('step_failed', 'pending'), ('recovered', 'pending'), ('resolved', 'cancelled')) AS e (event, status)`)
	got := p.texts(`SELECT format('%s %s %s %s %s', topic, data ->> 'namespace', data -> 'change' ->> 'event', data -> 'change' ->> 'actor', data ->> 'resolution_status')
		FROM tasker.outbox ORDER BY position`)
	want := []string{
		"dlq.entry.created a created ann pending", "dlq.entry.updated a updated ann pending", "dlq.entry.updated a step_failed ann pending",
		"dlq.entry.recovered a recovered ann pending", "dlq.entry.resolved a resolved ann cancelled",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := p.text(`SELECT format('%s %s %s', data ->> 'analytics_type', data -> 'change' ->> 'notes', data ->> 'dlq_reason') FROM tasker.outbox ORDER BY position LIMIT 1`); got != "STEP_DEAD_LETTERED why manual_dlq" {
		t.Errorf("the first event says %s", got)
	}
	if got := p.text(`SELECT string_agg(data::text, '') FROM tasker.outbox`); strings.Contains(got, "s3cret") || !strings.Contains(got, `"a": 1`) {
		t.Errorf("events say %s", got)
	}
	if got := p.text(`SELECT count(DISTINCT event_uuid)::text FROM tasker.outbox WHERE pg_visible_in_snapshot(written_in, pg_current_snapshot())`); got != "5" {
		t.Errorf("%s events are complete", got)
	}
	_, err := p.conn.Exec(t.Context(), `BEGIN; INSERT INTO tasker.tasks_dlq_history (dlq_entry_uuid, event, actor, to_status)
		SELECT dlq_entry_uuid, 'updated', 'ann', 'pending' FROM tasker.tasks_dlq; ROLLBACK`, pgx.QueryExecModeSimpleProtocol)
	p.Must(err)
	if got := p.text(`SELECT count(*)::text FROM tasker.outbox`); got != "5" {
		t.Errorf("%s events, although the sixth was rolled back", got)
	}
}

// redacts stores rules as a server does when it starts.
func (p *findPosition) redacts(r redact.Rules) {
	p.Helper()
	paths, err := json.Marshal(r.Paths())
	p.Must(err)
	_, err = p.conn.Exec(p.Context(), `UPDATE tasker.redaction
		SET key_pattern = $1, key_words = array_remove(ARRAY[$2], ''), text_patterns = $3, paths = $4::text::jsonb`,
		r.Pattern(), r.Document(), r.Texts(), string(paths))
	p.Must(err)
}

// The schema has redaction rules before a server stores its own: a list of words.
func TestRedactionRulesOfTheSchema(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	got := p.text(`SELECT tasker.redact_document('{"x": [{"API-Key": 1, "pin": 2}], "note": "password=3"}')::text`)
	if want := `{"x": [{"pin": 2, "API-Key": "[redacted]"}], "note": "password=3"}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	p.exec(`UPDATE tasker.redaction SET key_words = '{}', key_pattern = '^$'`)
	if got := p.text(`SELECT tasker.redact_document('{"password": 1}')::text`); got != `{"password": 1}` {
		t.Errorf("without rules: %s", got)
	}
}

// The database hides what the log hides, for keys, names and texts of all kinds, and
// the search that goes first misses none of it.
func TestTheDatabaseHidesWhatTheLogHides(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	for _, list := range []string{redact.DefaultKeys, "", "clé, !*clés, пароль*, a*b, =2fa, 3ds2", "*, secret"} {
		rules, err := redact.New(list, "")
		if err != nil {
			continue
		}
		p.redacts(rules)
		docs := redactionCorpus(t)
		rows, err := p.conn.Query(t.Context(), `
			SELECT tasker.redact_document(d::jsonb)::text, d::jsonb::text FROM unnest($1::text[]) WITH ORDINALITY AS x (d, n) ORDER BY n`, docs)
		p.Must(err)
		i, hidden := 0, 0
		var got, plain string
		_, err = pgx.ForEachRow(rows, []any{&got, &plain}, func() error {
			want := logged(t, rules, plain)
			if !sameJSON(t, got, want) {
				t.Errorf("with %q the database shows\n%s, the log\n%s, of\n%s", list, got, want, plain)
			}
			if !sameJSON(t, got, plain) {
				hidden++
			}
			i++
			return nil
		})
		if err != nil || i != len(docs) || list != "" && hidden < 50 {
			t.Errorf("with %q: %d of %d documents, in %d something is hidden, %v", list, i, len(docs), hidden, err)
		}
	}
}

// The time that it takes to hide what is in a text is proportional to the length of the text.
func TestRedactionTakesLinearTime(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	rules, err := redact.New(redact.DefaultKeys, "")
	p.Must(err)
	p.redacts(rules)
	const length = 1 << 18
	for _, part := range []string{
		"password", "a", "://", "://a:", "-----BEGIN PRIVATE KEY-----", "token: ", "--", "<", `\"`, "cookie: a=", "eyJ", "Digest a=b, ", "password: ", "-u a",
		"<password", "Authorization: a ", "aB1=", `password=\"`, "bearer a ", "AAAA\n",
	} {
		took := func(length int) time.Duration {
			text := "password=x " + strings.Repeat(part, length/len(part)) // with something to hide, else no rule is tried
			began := time.Now()
			p.texts(`SELECT length(tasker.redact_document(jsonb_build_object('message', $1::text))::text)::text`, text)
			return time.Since(began)
		}
		// The shortest of several counts, because the machine may be busy with something else.
		of, all := took(length/16), took(length)
		for try := 0; try < 20 && all > 48*of+50*time.Millisecond; try++ {
			all = min(all, took(length))
		}
		if all > 48*of+50*time.Millisecond {
			t.Errorf("256 KiB of %q take %s, a sixteenth of them %s", part, all, of)
		}
	}
}

// redactionCorpus has documents whose keys and texts are put together from words,
// separators and letters of either case.
func redactionCorpus(t *testing.T) []string {
	t.Helper()
	words := []string{
		"password", "pass", "word", "token", "tokens", "Token", "ID", "id", "API", "key", "Keys", "count", "pin", "Pin", "PIN", "s", "x", "otp", "auth",
		"auth", "or", "session", "cvv", "2", "fa", "3ds", "clé", "CLÉS", "пароль", "ПАРОЛЬ", "a", "b", "secret", "bearer", "Bearer", "signature", "ab", "1",
	}
	between := []string{"", "", "-", "_", ".", "/", ":", " ", "\t", "\u00a0", "\u2003", "__", "=", " = ", "\"", "\": \"", "://u:", "@", "\\", "ß"}
	random := rand.New(rand.NewPCG(1, 2)) // the same texts each time
	text := func() string {
		var b strings.Builder
		for range 1 + random.IntN(5) {
			b.WriteString(words[random.IntN(len(words))] + between[random.IntN(len(between))])
		}
		return b.String()
	}
	var docs []string
	for range 1500 {
		doc := map[string]any{text(): text(), text(): []any{map[string]any{text(): 1}, text()}}
		if random.IntN(4) == 0 {
			doc["name"], doc["value"] = text(), text()
		}
		raw, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, string(raw))
	}
	return docs
}

// logged is a document as the log shows it.
func logged(t *testing.T, rules redact.Rules, doc string) string {
	t.Helper()
	var out bytes.Buffer
	slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{ReplaceAttr: rules.Attr})).Info("m", "doc", json.RawMessage(doc))
	var line struct{ Doc json.RawMessage }
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	return string(line.Doc)
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	if err := errors.Join(json.Unmarshal([]byte(a), &x), json.Unmarshal([]byte(b), &y)); err != nil {
		t.Fatal(err)
	}
	return cmp.Equal(x, y)
}

func TestRedaction(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	rules, err := redact.New(redact.DefaultKeys, "")
	p.Must(err)
	p.redacts(rules)
	for _, tt := range []struct{ doc, path, want string }{
		{`{"password": "x", "a": 1}`, `[]`, `{"a": 1, "password": "[redacted]"}`},
		{`{"a": [{"b": {"DB-Password": {"deep": [1]}, "c": "secret"}}, 7, "token"]}`, ``, `{"a": [{"b": {"c": "secret", "DB-Password": "[redacted]"}}, 7, "token"]}`},
		{`{"access_token": null, "tokens_used": 5, "x": []}`, ``, `{"x": [], "tokens_used": 5, "access_token": null}`},
		{`[{"cvv": 1}, [[{"IBAN": 2}]], {}]`, ``, `[{"cvv": "[redacted]"}, [[{"IBAN": "[redacted]"}]], {}]`},
		{`{"pass\u0077ord": "x"}`, ``, `{"password": "[redacted]"}`},
		{`{"pass\tword": "x", "card.PIN": 1, "spinning": 2}`, ``, `{"card.PIN": "[redacted]", "spinning": 2, "pass\tword": "[redacted]"}`},
		{`[{"name": "DB_PASSWORD", "value": 1}, {"key": "x", "value": 2}]`, ``, `[{"name": "DB_PASSWORD", "value": "[redacted]"}, {"key": "x", "value": 2}]`},
		{`{"message": "postgres://u:pw@h, \"pin\": \"1\""}`, ``, `{"message": "postgres://u:[redacted]@h, \"pin\": [redacted]"}`},
		{`{}`, ``, `{}`},
		{`"password"`, ``, `"password"`},
		{`{"task": {"context": {"mail": "m", "n": 1}}}`, `["task", "context", "mail"]`, `{"task": {"context": {"n": 1, "mail": "[redacted]"}}}`},
		{`{"steps": [{"r": {"raw": 1}}, {"r": null}, {"q": 2}, {"r": {"raw": {"x": 1}, "ok": 1}}]}`, `["steps", "*", "r", "raw"]`,
			`{"steps": [{"r": {"raw": "[redacted]"}}, {"r": null}, {"q": 2}, {"r": {"ok": 1, "raw": "[redacted]"}}]}`},
		{`{"steps": [1, 2, 3]}`, `["steps", "1"]`, `{"steps": [1, "[redacted]", 3]}`},
		{`{"a": {}, "b": []}`, `["*", "x"]`, `{"a": {}, "b": []}`},
		{`{"a": 1}`, `["a", "b"]`, `{"a": 1}`},
		{`{"a": 1, "b": {"x": 2}, "c": null}`, `["*"]`, `{"a": "[redacted]", "b": "[redacted]", "c": null}`},
		{`{"task": {"context": {"a": {"x": 1, "y": 2}, "b": {"x": [3]}, "c": 4}}}`, `["task", "context", "*", "x"]`,
			`{"task": {"context": {"a": {"x": "[redacted]", "y": 2}, "b": {"x": "[redacted]"}, "c": 4}}}`},
		{`{"a": {"b": {"c": 1}, "d": {"c": 2}}}`, `["*", "*", "c"]`, `{"a": {"b": {"c": "[redacted]"}, "d": {"c": "[redacted]"}}}`},
	} {
		sql := fmt.Sprintf(`SELECT tasker.redact_keys('%s', key_words, key_pattern, NULL, 0, text_patterns)::text FROM tasker.redaction`, tt.doc)
		if tt.path != "" && tt.path != "[]" {
			sql = fmt.Sprintf(`SELECT tasker.redact_path('%s', '%s')::text`, tt.doc, tt.path)
		}
		if got := p.text(sql); got != tt.want {
			t.Errorf("%s without %q is\n%s, want\n%s", tt.doc, tt.path, got, tt.want)
		}
	}
}

// Frozen evidence must never have held a secret; and where hiding fails, an
// investigation is opened all the same, without what may hold one.
func TestSnapshotsAreRedacted(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	p.exec(oneTask + `
		UPDATE tasker.tasks SET context = '{"card": {"number": "s3cret", "brand": "x"}, "api_key": "s3cret", "items": [{"mail": "s3cret"}], "order": 7}';
		UPDATE tasker.redaction SET paths = '[["task", "context", "card", "number"], ["task", "context", "items", "*", "mail"]]';
		SELECT tasker.create_dlq_entry(task_uuid, 'manual_dlq', 'x', 'operator', state) FROM tasker.tasks`)
	got := p.text(`SELECT (task_snapshot -> 'task' -> 'context')::text FROM tasker.tasks_dlq`)
	want := `{"card": {"brand": "x", "number": "[redacted]"}, "items": [{"mail": "[redacted]"}], "order": 7, "api_key": "[redacted]"}`
	if got != want {
		t.Errorf("the snapshot has %s, want %s", got, want)
	}
	if got := p.text(`SELECT concat(task_snapshot, d.metadata, o.data) FROM tasker.tasks_dlq d JOIN tasker.outbox o USING (dlq_entry_uuid)`); strings.Contains(got, "s3cret") {
		t.Errorf("a secret is on record: %s", got)
	}

	// A path begins at one of the places that there are.
	if diff := cmp.Diff(slices.Sorted(slices.Values(redact.Places)),
		p.texts(`SELECT k FROM tasker.tasks, jsonb_object_keys(tasker.task_snapshot(task_uuid, state, now(), 'x', now())) AS k ORDER BY k COLLATE "C"`)); diff != "" {
		t.Error(diff)
	}
	// What is hidden may be what the queue shows.
	p.exec(`UPDATE tasker.redaction SET paths = '[["time_in_state_minutes"]]';
		UPDATE tasker.tasks_dlq SET resolution_status = 'cancelled', resolved_at = now(), resolved_by = 'ann', resolution_notes = 'next' WHERE resolution_status = 'pending';
		SELECT tasker.create_dlq_entry(task_uuid, 'manual_dlq', 'x', 'operator', state) FROM tasker.tasks`)
	if got := p.text(`SELECT format('%s %s', count(*), count(time_in_state_minutes)) FROM tasker.v_dlq_investigation_queue`); got != "1 0" {
		t.Errorf("the queue has %s", got)
	}

	p.exec(`UPDATE tasker.redaction SET key_pattern = '(', key_words = '{api}';
		UPDATE tasker.tasks_dlq SET resolution_status = 'cancelled', resolved_at = now(), resolved_by = 'ann', resolution_notes = 'next' WHERE resolution_status = 'pending';
		SELECT tasker.create_dlq_entry(task_uuid, 'manual_dlq', 'x', 'operator', state) FROM tasker.tasks`)
	got = p.text(`SELECT format('%s %s %s', task_snapshot ? 'task', task_snapshot ->> 'task_name', task_snapshot ->> 'redaction_failed')
		FROM tasker.tasks_dlq WHERE resolution_status = 'pending'`)
	if !strings.HasPrefix(got, "f b invalid regular expression") {
		t.Errorf("with a broken rule the snapshot says %s", got)
	}
}

// The head of the monitor is what the view says, in the order that the API
// promises, whatever the mixture of thresholds.
func TestMonitorMatchesTheView(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	p.exec(`
		INSERT INTO tasker.task_templates (namespace, name, version, configuration, source, checksum) VALUES ('a', 'b', '1.0.0', '{}', '', '');
		INSERT INTO tasker.tasks (task_uuid, template_uuid, namespace, name, version, state, state_since, warn_at, stale_at, context, correlation_id, created_at, updated_at)
		SELECT tasker.uuid_generate_v7(), template_uuid, 'a', 'b', '1.0.0', 'steps_in_process',
			now() - s.age, now() - s.age + 0.8 * s.threshold, now() - s.age + s.threshold, '{}', '', now() - interval '40 days', now()
		FROM tasker.task_templates, (
			SELECT make_interval(mins => n * 7 % 200) AS age, make_interval(mins => (ARRAY[5, 30, 60, 61, 120, 2000, 50000])[n % 7 + 1]) AS threshold
			FROM generate_series(1, 300) n
		) s`)
	for _, zone := range []string{"UTC", "America/New_York"} {
		p.exec(`SET TimeZone = '` + zone + `'`)
		for _, limit := range []int{1, 10, 100, 150, 300, 1000} {
			want := p.texts(fmt.Sprintf(`
				SELECT format('%%s %%s %%s', task_uuid, health_status, round(staleness_threshold_minutes)) FROM (
					SELECT v.* FROM tasker.v_task_staleness_monitoring v JOIN tasker.tasks t USING (task_uuid)
					ORDER BY array_position(ARRAY['stale', 'warning', 'healthy'], health_status), t.state_since, task_uuid LIMIT %d
				) x`, limit))
			got := p.texts(fmt.Sprintf(`SELECT format('%%s %%s %%s', task_uuid, health_status, round(staleness_threshold_minutes::numeric)) FROM tasker.get_task_staleness(%d)`, limit))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("limit %d in %s: %s", limit, zone, diff)
			}
		}
	}
	if got := p.text(`SELECT string_agg(seconds::text, ' ' ORDER BY seconds) FROM tasker.thresholds_in_use() AS h (seconds)`); got != "300 1800 3600 3660 7200 120000 3000000" {
		t.Errorf("thresholds in use: %s", got)
	}
	if got := p.text(`SELECT format('%s %s', count(*), count(*) FILTER (WHERE time_in_state_minutes >= threshold_minutes)) FROM tasker.get_stale_tasks_for_dlq(1000)`); got != p.text(`SELECT format('%s %s', count(*), count(*)) FROM tasker.v_task_staleness_monitoring WHERE health_status = 'stale'`) {
		t.Errorf("the detector finds %s", got)
	}
}
