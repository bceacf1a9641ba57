package ctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/api"
	"tasker.example/tasker/internal/auth"
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/hold"
	"tasker.example/tasker/internal/operation"
)

// A permit is who may run a command, written down here once more, so that a command that
// asks the server for more or less than before is noticed.
type permit struct {
	roles  string   // or "everybody", or "known": whoever has a key
	needs  string   // the permission that a refusal names
	also   string   // another one, that viewers lack
	person bool     // somebody has to do something until it ends: only who may not is tested here
	reads  bool     // it reads what it names first, as those may who cannot do it
	alone  bool     // its exit codes are its own: 1 for what is not there
	names  bool     // it names something of the namespace shop, which does not exist for others
	args   []string // with parameters in braces, each of which makes or is something of the shop
	stdin  string
}

const (
	viewers    = "viewer operator developer admin"
	operators  = "operator admin"
	developers = "developer admin"
)

var permits = map[string]permit{
	"health": {roles: "everybody"}, "version": {roles: "everybody", args: []string{"--remote"}}, "whoami": {roles: "known"},
	"case fingerprint": {roles: "everybody", args: []string{"-"}, stdin: `{"message": "disk full"}`},
	"template schema":  {roles: "everybody"}, "template validate": {roles: "everybody", args: []string{"-"}, stdin: oneStep},

	"task list": {roles: viewers, needs: "tasks:read"}, "task attributes": {roles: viewers, needs: "tasks:read"}, "task get": {roles: viewers, needs: "tasks:read", names: true, args: []string{"{task}"}},
	"task steps":       {roles: viewers, needs: "tasks:read", names: true, args: []string{"{task}"}},
	"task step":        {roles: viewers, needs: "tasks:read", names: true, args: []string{"{task}", "{step}"}},
	"task items":       {roles: viewers, needs: "tasks:read", names: true, args: []string{"{task}", "{step}"}},
	"task transitions": {roles: viewers, needs: "tasks:read", names: true, args: []string{"{task}", "--step", "{step}"}},
	"task tree":        {roles: viewers, needs: "tasks:read", names: true, args: []string{"{task}"}},
	"task watch":       {roles: viewers, needs: "tasks:read", names: true, args: []string{"{cancelled}"}},
	"task submit":      {roles: developers, needs: "tasks:create", names: true, args: []string{"--namespace", "shop", "--name", "idle"}},
	"task cancel":      {roles: "operator developer admin", needs: "tasks:cancel", names: true, args: []string{"{idle}"}},
	"task reset-step":  {roles: operators, needs: "steps:operate", names: true, args: []string{"{failed}", "--reason", "r"}},
	"task resolve-step": {
		roles: operators, needs: "steps:operate", names: true, args: []string{"{failed}", "--reason", "r"},
	},
	"task complete-step": {
		roles: operators, needs: "steps:operate", names: true, args: []string{"{failed}", "--reason", "r", "--result", "{}"},
	},

	"task assign-step": {roles: operators, needs: "steps:operate", names: true, args: []string{"{asked}", "--to", "ann"}}, "inbox": {roles: viewers, needs: "tasks:read"},
	"task due":                {roles: operators, needs: "steps:operate", names: true, args: []string{"{idle}", "--at", "+1h"}},
	"task answer-link":        {roles: operators, needs: "steps:operate", names: true, args: []string{"{assigned}"}},
	"task answer-links":       {roles: viewers, needs: "tasks:read", names: true, args: []string{"{asked}"}},
	"task revoke-answer-link": {roles: operators, needs: "steps:operate", names: true, args: []string{"{assigned}", "{link}"}},
	"task assignee":           {roles: viewers, needs: "tasks:read", names: true, args: []string{"{asked}"}},
	"task answer-step":        {roles: "operator worker admin", needs: "steps:complete", names: true, args: []string{"{asked}", "--result", "{}"}},

	"dlq list": {roles: viewers, needs: "investigations:read"}, "dlq queue": {roles: viewers, needs: "investigations:read"},
	"dlq cases": {roles: viewers, needs: "investigations:read"}, "dlq counts": {roles: viewers, needs: "investigations:read"}, "dlq times": {roles: viewers, needs: "investigations:read"},
	"dlq stats": {roles: viewers, needs: "investigations:read"}, "dlq staleness": {roles: viewers, needs: "tasks:read"},
	"dlq get":     {roles: viewers, needs: "investigations:read", names: true, args: []string{"{entry}"}},
	"dlq export":  {roles: "operator developer admin", needs: "investigations:read", also: "payloads:read", names: true, args: []string{"{entry}"}},
	"dlq history": {roles: viewers, needs: "investigations:read", names: true, args: []string{"{entry}"}},
	"dlq related": {roles: viewers, needs: "investigations:read", names: true, args: []string{"{entry}"}},
	"dlq create":  {roles: operators, needs: "investigations:update", names: true, args: []string{"{idle}", "--reason", "r"}},
	"dlq update":  {roles: operators, needs: "investigations:update", names: true, args: []string{"{entry}", "--notes", "n"}},

	"operation plan":    {roles: operators, needs: "steps:operate", names: true, args: []string{"--namespace", "shop", "--name", "order", "--reset", "--reason", "r", "{failed-entry}"}},
	"operation run":     {roles: operators, needs: "steps:operate", names: true, alone: true, args: []string{"--namespace", "shop", "--name", "order", "--reset", "--reason", "r", "--yes", "{failed-entry}"}},
	"operation start":   {roles: operators, needs: "steps:operate", names: true, args: []string{"{planned}", "--plan-digest", "{digest}"}},
	"operation dry-run": {roles: operators, needs: "steps:operate", names: true, args: []string{"{planned}"}},
	"operation pause":   {roles: operators, needs: "steps:operate", names: true, args: []string{"{started}"}},
	"operation resume":  {roles: operators, needs: "steps:operate", names: true, args: []string{"{started}"}},
	"operation abort":   {roles: operators, needs: "steps:operate", names: true, args: []string{"{planned}"}},
	"operation list":    {roles: viewers, needs: "investigations:read"},
	"operation show":    {roles: viewers, needs: "investigations:read", names: true, args: []string{"{planned}"}},
	"operation items":   {roles: viewers, needs: "investigations:read", names: true, args: []string{"{planned}"}},
	"hold add":          {roles: operators, needs: "steps:operate", names: true, args: []string{"--namespace", "shop", "--handler", "{new}", "--for", "1h", "--reason", "r"}},
	"hold list":         {roles: viewers, needs: "tasks:read"},
	"hold show":         {roles: viewers, needs: "tasks:read", names: true, args: []string{"{hold}"}},
	"hold probe":        {roles: operators, needs: "steps:operate", names: true, args: []string{"{held}"}},
	"hold extend":       {roles: operators, needs: "steps:operate", names: true, args: []string{"{held}", "--for", "1h", "--reason", "r"}},
	"hold release":      {roles: operators, needs: "steps:operate", names: true, args: []string{"{held}", "--reason", "r"}},
	"schedule add":      {roles: developers, needs: "schedules:write", names: true, args: []string{"--namespace", "shop", "--name", "{new}", "--template", "order", "--every", "1h"}},
	"schedule change":   {roles: developers, needs: "tasks:read", also: "schedules:write", reads: true, names: true, args: []string{"{scheduled}", "--cron", "@daily"}},
	"schedule delete":   {roles: developers, needs: "schedules:write", names: true, args: []string{"{scheduled}"}},
	"schedule list":     {roles: viewers, needs: "tasks:read"},
	"schedule show":     {roles: viewers, needs: "tasks:read", names: true, args: []string{"{schedule}"}},
	"schedule firings":  {roles: viewers, needs: "tasks:read", names: true, args: []string{"{schedule}"}},
	"schedule pause":    {roles: "operator developer admin", needs: "schedules:operate", names: true, args: []string{"{scheduled}", "--reason", "r"}},
	"schedule resume":   {roles: "operator developer admin", needs: "schedules:operate", names: true, args: []string{"{paused}"}},
	"schedule trigger":  {roles: "operator developer admin", needs: "schedules:operate", names: true, args: []string{"{scheduled}"}},
	"schedule backfill": {roles: "operator developer admin", needs: "schedules:operate", names: true, args: []string{"{scheduled}", "--from", "2026-01-01T00:00:00Z", "--to", "2026-01-01T05:00:00Z"}},
	"case list":         {roles: viewers, needs: "investigations:read"},
	"case show":         {roles: viewers, needs: "investigations:read", names: true, args: []string{"{case}"}}, "case why": {roles: viewers, needs: "investigations:read", names: true, args: []string{"{case}"}},
	"case changes": {roles: viewers, needs: "investigations:read", names: true, args: []string{"{case}"}},
	"case own":     {roles: operators, needs: "investigations:update", names: true, args: []string{"{case}"}}, "case release": {roles: operators, needs: "investigations:update", names: true, args: []string{"{case}"}},
	"case snooze": {roles: operators, needs: "investigations:update", names: true, args: []string{"{case}"}}, "case wake": {roles: operators, needs: "investigations:update", names: true, args: []string{"{case}"}},
	"case note":    {roles: operators, needs: "investigations:update", names: true, args: []string{"{case}", "--notes", "n"}},
	"case fixed":   {roles: operators, needs: "investigations:update", names: true, args: []string{"{case}", "--in", "1.6.0"}},
	"case merge":   {roles: operators, needs: "investigations:update", names: true, args: []string{"{other}", "--into", "{case}", "--reason", "r"}},
	"case unmerge": {roles: operators, needs: "investigations:update", names: true, args: []string{"{merged}", "--reason", "r"}},
	"case split":   {roles: operators, needs: "investigations:update", names: true, args: []string{"{numbered}", "--literal", "{number}", "--reason", "r"}},

	"case report": {roles: viewers, needs: "investigations:read", names: true, args: []string{"{case}"}}, "report": {roles: viewers, needs: "investigations:read"},
	"incident report": {roles: viewers, needs: "investigations:read", names: true, args: []string{"{incident}"}},
	"drill run":       {roles: developers, needs: "templates:write", person: true, args: []string{"--namespace", "drill-x", "--tasks", "1"}},
	"drill clean":     {roles: viewers, needs: "templates:read", args: []string{"--namespace", "drill-x"}},
	"message test":    {roles: operators, needs: "events:resend", names: true, args: []string{"--namespace", "shop"}},
	"incident list":   {roles: viewers, needs: "investigations:read"},
	"incident show":   {roles: viewers, needs: "investigations:read", names: true, args: []string{"{incident}"}},

	"explain":       {roles: viewers, needs: "tasks:read", names: true, args: []string{"{entry}"}},
	"explain queue": {roles: viewers, needs: "workers:read", names: true, args: []string{"shop", "run"}},

	"dlq watch": {roles: viewers, needs: "events:read", args: []string{"--from-beginning"}}, "dlq emissions": {roles: viewers, needs: "events:read"},
	"dlq emission": {roles: viewers, needs: "events:read", names: true, args: []string{"{event}"}},
	"dlq re-emit":  {roles: operators, needs: "events:resend", names: true, args: []string{"{event}", "--reason", "r"}},
	"dlq sinks":    {roles: "viewer@* operator@* developer@* admin@*", needs: "system:read"},

	"template list":         {roles: viewers, needs: "templates:read"},
	"template get":          {roles: viewers, needs: "templates:read", names: true, args: []string{"shop", "order", "1.0.0"}},
	"template retire":       {roles: developers, needs: "templates:write", names: true, args: []string{"shop", "order", "1.0.0", "--reason", "x"}},
	"template unretire":     {roles: developers, needs: "templates:write", names: true, args: []string{"shop", "order", "1.0.0", "--reason", "x"}},
	"task cancel-all":       {roles: "operator developer admin", needs: "tasks:cancel", args: []string{"--namespace", "shop", "--dry-run"}},
	"template change-tasks": {roles: operators, needs: "steps:operate", names: true, args: []string{"shop", "order", "1.0.0", "--to", "0.9.0", "--dry-run"}},
	"task change-version":   {roles: operators, needs: "steps:operate", names: true, args: []string{"{task}", "--to", "1.0.0", "--dry-run"}},
	"template register":     {roles: developers, needs: "templates:write", names: true, args: []string{"-"}, stdin: strings.Replace(oneStep, "orders", "shop", 1)},

	"worker list": {roles: viewers, needs: "workers:read"}, "worker drain": {roles: operators, needs: "workers:drain", names: true, args: []string{"{worker}"}},
	"queue list": {roles: viewers, needs: "workers:read"}, "namespace list": {roles: viewers, needs: "workers:read"}, "limit list": {roles: viewers, needs: "workers:read"},
	"limit show":       {roles: viewers, needs: "workers:read"},
	"limit set":        {roles: operators, needs: "steps:operate", names: true, args: []string{"namespace", "--namespace", "shop", "--max", "7"}},
	"limit delete":     {roles: operators, needs: "steps:operate", names: true, args: []string{"namespace", "--namespace", "{limited}"}},
	"namespace weight": {roles: "admin@*", needs: "system:admin", args: []string{"shop", "2"}},
	"namespace reset":  {roles: "admin@*", needs: "system:admin", args: []string{"{weighted}"}},

	"audit list": {roles: "admin@*", needs: "system:admin"}, "key list": {roles: "admin@*", needs: "system:admin"},
	"key create":   {roles: "admin@*", needs: "system:admin", args: []string{"{new}", "--grant", "viewer@shop"}},
	"key rotate":   {roles: "admin@*", needs: "system:admin", args: []string{"{key}"}},
	"key revoke":   {roles: "admin@*", needs: "system:admin", args: []string{"{key}"}},
	"session list": {roles: "admin@*", needs: "system:admin"}, "session end": {roles: "admin@*", needs: "system:admin", args: []string{"user:nobody"}},
}

// want returns the exit code of a command, as the help lists them, for a
// caller: the name of a grant, or what is wrong with the token.
func (m permit) want(caller string) int {
	role, namespace, known := strings.Cut(caller, "@")
	list := strings.Fields(m.roles)
	switch {
	case m.roles == "everybody":
		return cli.ExitOK
	case !known:
		return cli.ExitError
	case m.roles == "known" || strings.Contains(m.roles, "@") && slices.Contains(list, caller):
		return cli.ExitOK
	case m.reads && namespace == "attic" && slices.Contains(strings.Fields(viewers), role):
		return exitNotFound
	case !slices.Contains(list, role):
		return cli.ExitError
	case m.names && namespace == "attic" && m.alone:
		return cli.ExitError
	case m.names && namespace == "attic":
		return exitNotFound
	default:
		return cli.ExitOK
	}
}

// A matrix is a server that asks who is calling, with something in two namespaces.
type matrix struct {
	*enginetest.Harness
	url    string
	log    bytes.Buffer // what the server has to say about itself
	tokens map[string]string
	shop   map[string]string // ids, by the name of a parameter
	worker map[string]tasker.ID
	keys   int

	operations []tasker.ID
	number     string // which one failure of the case of {numbered} has
}

func newMatrix(t *testing.T) *matrix {
	t.Helper()
	m := &matrix{Harness: enginetest.New(t), tokens: map[string]string{"without a token": "", "nonsense": "open-sesame"}, worker: map[string]tasker.ID{}}
	a := auth.New(auth.Options{DB: m.DB})
	stopping, stop := context.WithCancel(t.Context())
	log := slog.New(slog.NewTextHandler(&m.log, &slog.HandlerOptions{Level: slog.LevelError}))
	s := httptest.NewServer(api.New(stopping, api.Options{DB: m.DB, Engine: m.Engine, DLQ: m.DLQ, Auth: a, Log: log}))
	t.Cleanup(s.Close)
	t.Cleanup(stop)
	m.url = s.URL
	m.Must(m.DB.OpenSink(t.Context(), "log"))
	m.fill("attic")
	m.shop = m.fill("shop")
	_, err := m.DB.TakeEvents(t.Context(), "log", 100)
	m.Must(err)
	for _, role := range []string{"viewer", "operator", "developer", "worker", "admin"} {
		for _, namespace := range []string{"shop", "attic", "*"} {
			grant := role + "@" + namespace
			m.tokens[grant] = m.key(grant, grant)
		}
	}
	m.tokens["unknown"] = access.NewToken().Text
	m.tokens["expired"], m.tokens["revoked"] = m.key("expired", "admin@*"), m.key("revoked", "admin@*")
	m.Exec(`UPDATE tasker.api_keys SET revoked_at = now(), revoked_by = 'test' WHERE name = 'revoked'`)
	m.Exec(`UPDATE tasker.api_keys SET expires_at = now() WHERE name = 'expired'`)
	return m
}

func (m *matrix) key(name, grant string) (token string) {
	m.Helper()
	_, token, err := auth.CreateKey(m.Context(), m.DB, auth.NewKey{Name: name, Grants: []string{grant}})
	m.Must(err)
	return token
}

// fill makes one of each in a namespace and returns their ids.
func (m *matrix) fill(namespace string) map[string]string {
	m.Helper()
	m.Space = namespace
	_, _, err := m.Engine.RegisterTemplate(m.Context(), tasker.Template{
		Namespace: m.Space, Name: "order", Version: "0.9.0", Steps: []tasker.StepTemplate{enginetest.Once(enginetest.Step("charge"))},
	}, "")
	m.Must(err)
	m.Template("order", enginetest.Once(enginetest.Step("charge")))
	idle := enginetest.Step("wait")
	idle.Handler.Callable = "nobody"
	m.Template("idle", idle)
	m.Template("asked", tasker.StepTemplate{Name: "answer", Type: tasker.ExternalStep, Retry: tasker.DefaultRetry()})
	m.worker[namespace] = m.RegisterWorker("run")
	m.Exec(`UPDATE tasker.workers SET heartbeat_interval = interval '10 minutes', lease = interval '1 hour'`)
	task, step := m.failed()
	entry := m.Entry(task)
	cancelled := m.resolved()
	m.FindCases()
	c := m.query(`SELECT case_id::text FROM tasker.cases WHERE namespace = $1`, namespace)
	var event string
	m.Must(m.Admin().QueryRow(m.Context(), `SELECT event_uuid::text FROM tasker.outbox WHERE task_uuid = $1 ORDER BY position LIMIT 1`, task).Scan(&event))
	return map[string]string{
		"schedule": m.scheduled(namespace, false), "hold": m.held(), "task": task.String(), "step": step.String(), "entry": entry.UUID.String(), "event": event, "worker": m.worker[namespace].String(), "cancelled": cancelled, "case": c,
		"incident": m.query(`INSERT INTO tasker.incidents (namespace, lead_case_id, dedup_key, severity) VALUES ($1, $2::uuid, 'key', 'high') RETURNING incident_id::text`, namespace, c),
	}
}

func (m *matrix) query(sql string, args ...any) (text string) {
	m.Helper()
	m.Must(m.Admin().QueryRow(m.Context(), sql, args...).Scan(&text))
	return text
}

// numbered makes two investigations of one case whose messages differ in a number.
func (m *matrix) numbered() (caseID, number string) {
	m.Helper()
	var entry tasker.Entry
	for range 2 {
		m.keys++
		number = strconv.Itoa(40_000 + m.keys)
		task, _ := m.failedWith("refused for order " + number)
		entry = m.Entry(task)
	}
	m.FindCases()
	return m.query(`SELECT f.case_id::text FROM tasker.case_members m JOIN tasker.case_fingerprints f USING (fingerprint) WHERE dlq_entry_uuid = $1`, entry.UUID), number
}

// failed makes a task whose only step has failed for good.
func (m *matrix) failed() (task, step tasker.ID) {
	m.Helper()
	return m.failedWith("payload of " + m.Space)
}

func (m *matrix) failedWith(message string) (task, step tasker.ID) {
	m.Helper()
	task = m.CreateWith(tasker.NewTask{Namespace: m.Space, Name: "order", Context: json.RawMessage(`{"text": "payload of ` + m.Space + `"}`)})
	list, err := m.Engine.Claim(m.Context(), m.worker[m.Space], 100, 0) // also those that were reset
	m.Must(err)
	var outcomes []tasker.Outcome
	for _, a := range list {
		outcomes = append(outcomes, tasker.Outcome{Lease: a.Lease(), Failure: &tasker.Failure{Message: message, Type: "Declined"}})
		if a.TaskUUID == task {
			step = a.StepUUID
		}
	}
	_, err = m.Engine.Report(m.Context(), m.worker[m.Space], outcomes, 0)
	m.Must(err)
	return task, step
}

// resolved makes a task that a person has brought to its end.
func (m *matrix) resolved() string {
	m.Helper()
	task, step := m.failed()
	_, err := m.Engine.OperateStep(m.Context(), task, step, tasker.ActionRequest{Action: tasker.ResolveManually, Actor: "test", Reason: "test"})
	m.Must(err)
	return task.String()
}

// operation makes an operation of one step of the shop, without those that others hold.
func (m *matrix) operation(started bool) tasker.Operation {
	m.Helper()
	task, _ := m.failed()
	ops := operation.New(m.DB, m.Engine, m.DLQ, operation.Options{})
	o, _, err := ops.Plan(m.Context(), tasker.OperationPlan{
		Act: tasker.ActReset, Actor: "test", Reason: "test", Selection: tasker.OperationSelection{IDs: []tasker.ID{task}},
	})
	m.Must(err)
	if started {
		o, err = ops.Start(m.Context(), o.UUID, o.PlanDigest, "test")
		m.Must(err)
	}
	m.operations = append(m.operations, o.UUID)
	if n := len(m.operations) - 1; n > 0 { // they are bounded
		_, err = ops.Abort(m.Context(), m.operations[n-1], "test")
		m.Must(err)
	}
	return o
}

// held makes a hold of the shop that holds a step.
func (m *matrix) held() string {
	m.Helper()
	m.keys++
	handler := fmt.Sprintf("held-%d", m.keys)
	h, err := hold.New(m.DB, m.Engine, hold.Options{}).Begin(m.Context(), tasker.NewHold{
		HoldScope: tasker.HoldScope{Namespace: m.Space, Handler: handler}, For: time.Hour, Owner: "test", Reason: "test",
	})
	m.Must(err)
	m.Exec(`INSERT INTO tasker.held_steps (hold_uuid, namespace, handler, priority, state_since, step_uuid, task_uuid) VALUES ($1, $2, $3, 0, now(), $4, $5)`,
		h.UUID, m.Space, handler, tasker.NewID(), tasker.NewID())
	return h.UUID.String()
}

// scheduled makes a schedule.
func (m *matrix) scheduled(namespace string, paused bool) string {
	m.Helper()
	m.keys++
	by := engine.ScheduleChange{Actor: "test"}
	s, err := m.Engine.CreateSchedule(m.Context(), tasker.ScheduleSpec{
		Namespace: namespace, Name: fmt.Sprintf("scheduled-%d", m.keys), Template: "order", ScheduleRule: tasker.ScheduleRule{Every: time.Hour},
	}, by)
	m.Must(err)
	if paused {
		_, err = m.Engine.PauseSchedule(m.Context(), s.UUID, nil, by)
		m.Must(err)
	}
	return s.UUID.String()
}

// line returns a command line, for which it makes what it names.
func (m *matrix) line(command string, p permit) []string {
	m.Helper()
	args := strings.Fields(command)
	var o tasker.Operation
	var asked, link tasker.ID
	for _, a := range p.args {
		switch {
		case a == "{failed}":
			task, step := m.failed()
			args = append(args, task.String(), step.String())
		case a == "{failed-entry}":
			task, _ := m.failed()
			args = append(args, m.Entry(task).UUID.String())
		case a == "{planned}", a == "{started}":
			o = m.operation(a == "{started}")
			args = append(args, o.UUID.String())
		case a == "{limited}":
			m.Exec(`INSERT INTO tasker.limits (kind, namespace, name, max_in_progress, by_template, changed_by) VALUES ('namespace', 'shop', '', 7, false, 'test') ON CONFLICT DO NOTHING`)
			args = append(args, "shop")
		case a == "{weighted}":
			m.Exec(`INSERT INTO tasker.namespaces (namespace, weight, set_by) VALUES ('shop', 2, '') ON CONFLICT DO NOTHING`)
			args = append(args, "shop")
		case a == "{held}":
			args = append(args, m.held())
		case a == "{scheduled}", a == "{paused}":
			args = append(args, m.scheduled(m.Space, a == "{paused}"))
		case a == "{digest}":
			args = append(args, o.PlanDigest)
		case a == "{other}" || a == "{merged}":
			args = append(args, m.query(`
				INSERT INTO tasker.cases (namespace, task_name, step_name, dlq_reason, detail_code, error_type, error_pattern, state, resolved_at, state_since, first_seen_at, updated_at, merged_into)
				VALUES ($1, 'order', '', 'manual_dlq', 'x', '', '', CASE WHEN $2 THEN 'resolved' ELSE 'new' END, CASE WHEN $2 THEN now() END, now(), now(), now(), CASE WHEN $2 THEN $3::uuid END)
				RETURNING case_id::text`, m.Space, a == "{merged}", m.shop["case"]))
		case a == "{numbered}":
			var id string
			id, m.number = m.numbered()
			args = append(args, id)
		case a == "{number}":
			args = append(args, m.number)
		case a == "{asked}":
			args = append(args, m.Create("asked").String(), "answer")
		case a == "{assigned}":
			asked, link = m.assigned()
			args = append(args, asked.String(), "answer")
		case a == "{link}":
			args = append(args, link.String())
		case a == "{idle}":
			args = append(args, m.Create("idle").String())
		case a == "{new}":
			m.keys++
			args = append(args, fmt.Sprintf("new-%d", m.keys))
		case a == "{key}":
			m.keys++
			name := fmt.Sprintf("old-%d", m.keys)
			m.key(name, "viewer@shop")
			args = append(args, name)
		case strings.HasPrefix(a, "{") && a != "{}":
			args = append(args, m.shop[strings.Trim(a, "{}")])
		default:
			args = append(args, a)
		}
	}
	return args
}

// assigned is a task with a step that waits for ann, and a link by which she answers it.
func (m *matrix) assigned() (task, link tasker.ID) {
	m.Helper()
	task = m.Create("asked")
	step, err := m.DB.StepNamed(m.Context(), task, "answer")
	m.Must(err)
	ref := tasker.StepRef{TaskUUID: task, StepUUID: step}
	_, err = m.Engine.Assign(m.Context(), ref, tasker.AssignRequest{Assignee: "ann", Actor: "test"})
	m.Must(err)
	l, err := m.Engine.CreateAnswerLink(m.Context(), ref, tasker.AnswerLinkRequest{Actor: "test"})
	m.Must(err)
	return task, l.UUID
}

// enough ends a command when it has printed something, as Ctrl-C does.
type enough struct {
	bytes.Buffer
	end func()
}

func (e *enough) Write(text []byte) (int, error) {
	defer e.end()
	return e.Buffer.Write(text)
}

// run runs a command line as a caller. One that goes on is interrupted at its first line.
func (m *matrix) run(caller, stdin string, args ...string) (code int, stdout, stderr string) {
	m.Helper()
	ctx, cancel := context.WithCancel(m.Context())
	defer cancel()
	out := &enough{end: func() {}}
	if slices.Contains(args, "--from-beginning") {
		out.end = cancel
	}
	var errs bytes.Buffer
	p := &program{in: strings.NewReader(stdin), out: out, err: &errs, env: map[string]string{"TASKER_URL": m.url, "TASKER_ACTOR": "ops", "TASKER_TOKEN": m.tokens[caller]}}
	code = p.main(ctx, append([]string{"tasker-ctl"}, args...))
	return code, out.String(), errs.String()
}

// contents counts the rows of every table but those of what a refusal leaves behind.
func (m *matrix) contents() string {
	m.Helper()
	rows, err := m.Admin().Query(m.Context(), `SELECT format('SELECT %L, count(*), coalesce(md5(string_agg(r::text, '','' ORDER BY r::text)), '''') FROM tasker.%I r', relname, relname)
		FROM pg_class WHERE relnamespace = 'tasker'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition AND relname <> 'audit_events' ORDER BY relname`)
	m.Must(err)
	queries, err := pgx.CollectRows(rows, pgx.RowTo[string])
	m.Must(err)
	if len(queries) < 10 {
		m.Fatalf("%d tables", len(queries))
	}
	var all strings.Builder
	for _, q := range queries {
		var table, digest string
		var n int
		m.Must(m.Admin().QueryRow(m.Context(), q).Scan(&table, &n, &digest))
		fmt.Fprintln(&all, table, n, digest)
	}
	return all.String()
}

// refused checks what a caller reads who was refused.
func (m *matrix) refused(p permit, caller, stdout, stderr string) error {
	role, namespace, known := strings.Cut(caller, "@")
	var want []string
	switch code := p.want(caller); {
	case !known && m.tokens[caller] == "":
		want = []string{"Error: authentication required", "set TASKER_TOKEN, or TASKER_TOKEN_FILE to a file", "tasker-ctl key create"}
	case !known:
		want = []string{"Error: invalid API key: it is unknown, revoked or expired", "check TASKER_TOKEN, TASKER_TOKEN_FILE or --token-file"}
	case code == exitNotFound || p.alone && namespace == "attic" && slices.Contains(strings.Fields(p.roles), role):
		want = []string{"no ", "your permissions: tasker-ctl whoami"}
	case p.also != "" && (role == "viewer" || p.reads && slices.Contains(strings.Fields(viewers), role)):
		want = []string{"Error: key:" + caller + " may not do this: it needs the permission " + p.also}
	default:
		want = []string{"Error: key:" + caller + " may not do this: it needs the permission " + p.needs, "your permissions: tasker-ctl whoami"}
	}
	for _, text := range want {
		if !strings.Contains(stderr, text) {
			return fmt.Errorf("it does not say %q", text)
		}
	}
	switch {
	case stdout != "":
		return errors.New("it prints something all the same")
	case m.tokens[caller] != "" && strings.Contains(stderr, m.tokens[caller]):
		return errors.New("it prints the token")
	}
	return nil
}

// Every command, as every caller: the exact exit code, and what the caller reads. What is
// refused changes nothing.
func TestWhoMayRunWhat(t *testing.T) {
	t.Parallel()
	m := newMatrix(t)
	var commands []string
	leaves((&program{env: map[string]string{}}).root("tasker-ctl"), func(c *cobra.Command) {
		commands = append(commands, strings.TrimPrefix(c.CommandPath(), "tasker-ctl "))
	})
	for name := range permits {
		if !slices.Contains(commands, name) {
			t.Errorf("there is no command %s", name)
		}
	}
	lines := map[string][]string{}
	for _, c := range commands {
		p, ok := permits[c]
		if !ok {
			t.Errorf("nothing is written down of %s", c)
		}
		lines[c] = m.line(c, p)
	}
	cells := 0
	cell := func(command, caller string, args ...string) (stdout, stderr string) {
		cells++
		want := permits[command].want(caller)
		code, stdout, stderr := m.run(caller, permits[command].stdin, args...)
		if code != want {
			t.Errorf("%s by %s: exit code %d, want %d: %.400s%.400s", command, caller, code, want, stdout, stderr)
		}
		for _, text := range []string{"INTERNAL", "internal error", "panic", "goroutine"} {
			if strings.Contains(stderr, text) {
				t.Errorf("%s by %s: %s", command, caller, stderr)
			}
		}
		return stdout, stderr
	}
	before := m.contents()
	for _, command := range commands {
		for caller := range m.tokens {
			p := permits[command]
			if p.want(caller) == cli.ExitOK {
				continue
			}
			stdout, stderr := cell(command, caller, lines[command]...)
			if err := m.refused(p, caller, stdout, stderr); err != nil {
				t.Errorf("%s by %s: %v: %s%s", command, caller, err, stdout, stderr)
			}
			var e apiv1.Error
			if _, stderr = cell(command, caller, append([]string{"-o", "json"}, lines[command]...)...); json.Unmarshal([]byte(stderr), &e) != nil || e.Error.Code == "" {
				t.Errorf("%s by %s: this is not an error for programs: %s", command, caller, stderr)
			}
		}
	}
	if after := m.contents(); after != before {
		t.Errorf("what was refused has changed something:\n%s\nwas\n%s", after, before)
	}
	for _, command := range commands {
		for caller := range m.tokens {
			p := permits[command]
			if p.want(caller) != cli.ExitOK || p.person {
				continue
			}
			stdout, stderr := cell(command, caller, m.line(command, p)...)
			role, namespace, _ := strings.Cut(caller, "@")
			if namespace == "attic" && (strings.Contains(stdout+stderr, "shop") && command != "whoami" || strings.Contains(stdout, m.shop["task"])) {
				t.Errorf("%s by %s shows another namespace: %s%s", command, caller, stdout, stderr)
			}
			if role == "viewer" && strings.Contains(stdout, "payload of") {
				t.Errorf("%s by %s shows a payload: %s", command, caller, stdout)
			}
		}
	}
	if cells < 800 {
		t.Errorf("%d cells", cells)
	}
	t.Logf("%d cells", cells)
	if m.log.Len() > 0 {
		t.Errorf("the server's log: %s", &m.log)
	}
}
