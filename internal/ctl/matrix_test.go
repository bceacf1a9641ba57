package ctl

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

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

// public commands need no permission.
const public = "public"

// permits has the permission that each command needs, and its arguments. A word in braces is the id
// of an object in namespace shop.
var permits = map[string]string{
	"health": public, "version": public + " --remote", "whoami": public, "template schema": public,
	"case fingerprint": public + " -", "template validate": public + " -",

	"task list": "tasks:read", "task attributes": "tasks:read", "inbox": "tasks:read",
	"task get":                "tasks:read {task}",
	"task steps":              "tasks:read {task}",
	"task step":               "tasks:read {task} {step}",
	"task items":              "tasks:read {task} {step}",
	"task transitions":        "tasks:read {task} --step {step}",
	"task tree":               "tasks:read {task}",
	"task requests":           "tasks:read",
	"task dismiss":            "tasks:cancel {task}",
	"task watch":              "tasks:read {complete}",
	"task submit":             "tasks:create --namespace shop --name order",
	"task cancel":             "tasks:cancel {task}",
	"task cancel-all":         "tasks:cancel --namespace cellar --dry-run",
	"task reset-step":         "steps:operate {task} {step} --reason r",
	"task resolve-step":       "steps:operate {task} {step} --reason r",
	"task complete-step":      "steps:operate {task} {step} --reason r --result {}",
	"task assign-step":        "steps:operate {task} {step} --to ann",
	"task due":                "steps:operate {task} --at +1h",
	"task answer-link":        "steps:operate {task} {step}",
	"task answer-links":       "tasks:read {asked} answer",
	"task revoke-answer-link": "steps:operate {task} {step} {link}",
	"task assignee":           "tasks:read {asked} answer",
	"task answer-step":        "steps:complete {task} {step} --result {}",
	"task change-version":     "steps:operate {task} --to 1.0.0 --dry-run",

	"dlq list": "investigations:read", "dlq queue": "investigations:read", "dlq cases": "investigations:read",
	"dlq counts": "investigations:read", "dlq times": "investigations:read", "dlq stats": "investigations:read",
	"dlq staleness": "tasks:read",
	"dlq get":       "investigations:read {entry}",
	"dlq export":    "investigations:read {entry}",
	"dlq history":   "investigations:read {entry}",
	"dlq related":   "investigations:read {entry}",
	"dlq create":    "investigations:update {task} --reason r",
	"dlq update":    "investigations:update {entry} --notes n",
	"dlq watch":     "events:read --from-beginning", "dlq emissions": "events:read",
	"dlq emission": "events:read {event}",
	"dlq re-emit":  "events:resend {event} --reason r",
	"dlq sinks":    "system:read",

	"operation plan":    "steps:operate --namespace shop --name order --reset --reason r {entry}",
	"operation run":     "steps:operate --namespace shop --name order --reset --reason r --yes {entry}",
	"operation start":   "steps:operate {operation} --plan-digest d",
	"operation dry-run": "steps:operate {operation}",
	"operation pause":   "steps:operate {operation}",
	"operation resume":  "steps:operate {operation}",
	"operation abort":   "steps:operate {operation}",
	"operation list":    "investigations:read",
	"operation show":    "investigations:read {operation}",
	"operation items":   "investigations:read {operation}",

	"hold add":     "steps:operate --namespace shop --handler run --for 1h --reason r",
	"hold list":    "tasks:read",
	"hold show":    "tasks:read {hold}",
	"hold probe":   "steps:operate {hold}",
	"hold extend":  "steps:operate {hold} --for 1h --reason r",
	"hold release": "steps:operate {hold} --reason r",

	"schedule add":      "schedules:write --namespace shop --name s --template order --every 1h",
	"schedule change":   "tasks:read {schedule} --cron @daily",
	"schedule delete":   "schedules:write {schedule}",
	"schedule list":     "tasks:read",
	"schedule show":     "tasks:read {schedule}",
	"schedule firings":  "tasks:read {schedule}",
	"schedule pause":    "schedules:operate {schedule} --reason r",
	"schedule resume":   "schedules:operate {schedule}",
	"schedule trigger":  "schedules:operate {schedule}",
	"schedule backfill": "schedules:operate {schedule} --from 2026-01-01T00:00:00Z --to 2026-01-01T05:00:00Z",

	"case list":       "investigations:read",
	"case show":       "investigations:read {case}",
	"case why":        "investigations:read {case}",
	"case changes":    "investigations:read {case}",
	"case report":     "investigations:read {case}",
	"case own":        "investigations:update {case}",
	"case release":    "investigations:update {case}",
	"case snooze":     "investigations:update {case}",
	"case wake":       "investigations:update {case}",
	"case note":       "investigations:update {case} --notes n",
	"case fixed":      "investigations:update {case} --in 1.6.0",
	"case merge":      "investigations:update {case} --into {other} --reason r",
	"case unmerge":    "investigations:update {case} --reason r",
	"case split":      "investigations:update {case} --literal x --reason r",
	"incident list":   "investigations:read",
	"incident show":   "investigations:read {incident}",
	"incident report": "investigations:read {incident}",
	"report":          "investigations:read",
	"message test":    "events:resend --namespace shop",
	"explain":         "tasks:read {entry}",
	"explain queue":   "workers:read shop run",

	"template list":         "templates:read",
	"template get":          "templates:read shop order 1.0.0",
	"template retire":       "templates:write shop order 1.0.0 --reason r",
	"template unretire":     "templates:write shop order 1.0.0 --reason r",
	"template change-tasks": "steps:operate shop order 1.0.0 --to 0.9.0 --dry-run",
	"template register":     "templates:write -",
	"drill run":             "templates:write --namespace drill-x --tasks 1",
	"drill clean":           "templates:read --namespace drill-x",

	"worker list": "workers:read", "worker drain": "workers:drain {worker}",
	"queue list": "workers:read", "namespace list": "workers:read", "limit list": "workers:read", "limit show": "workers:read",
	"limit set":        "steps:operate namespace --namespace shop --max 7",
	"limit delete":     "steps:operate namespace --namespace shop",
	"namespace weight": "system:admin shop 2",
	"namespace reset":  "system:admin shop",
	"audit list":       "system:admin",
	"key list":         "system:admin",
	"key create":       "system:admin k --grant viewer@shop",
	"key rotate":       "system:admin k",
	"key revoke":       "system:admin k",
	"session list":     "system:admin",
	"session end":      "system:admin user:nobody",
}

// A matrix is a server that authenticates callers, with one object of each kind in namespace shop.
type matrix struct {
	*enginetest.Harness
	url    string
	log    bytes.Buffer // of the server, from level error
	tokens map[string]string
	ids    map[string]string
}

func newMatrix(t *testing.T) *matrix {
	t.Helper()
	m := &matrix{Harness: enginetest.New(t), tokens: map[string]string{"anonymous": "", "unknown": access.NewToken().Text}}
	stopping, stop := context.WithCancel(t.Context())
	log := slog.New(slog.NewTextHandler(&m.log, &slog.HandlerOptions{Level: slog.LevelError}))
	s := httptest.NewServer(api.New(stopping, api.Options{
		DB: m.DB, Engine: m.Engine, DLQ: m.DLQ, Auth: auth.New(auth.Options{DB: m.DB}), Log: log,
	}))
	t.Cleanup(s.Close)
	t.Cleanup(stop)
	m.url = s.URL
	m.fill()
	for _, grant := range []string{"worker@shop", "viewer@shop", "admin@attic"} {
		_, token, err := auth.CreateKey(t.Context(), m.DB, auth.NewKey{Name: grant, Grants: []string{grant}})
		m.Must(err)
		m.tokens[grant] = token
	}
	return m
}

// fill creates one object of each kind.
func (m *matrix) fill() {
	m.Helper()
	m.Must(m.DB.OpenSink(m.Context(), "log"))
	m.Template("order", enginetest.Once(enginetest.Step("charge")))
	m.Template("asked", tasker.StepTemplate{Name: "answer", Type: tasker.ExternalStep, Retry: tasker.DefaultRetry()})
	worker := m.RegisterWorker("run")
	fail := func() (task, step tasker.ID) {
		task = m.CreateWith(tasker.NewTask{Namespace: "shop", Name: "order", Context: json.RawMessage(`{"text": "payload of shop"}`)})
		list, err := m.Engine.Claim(m.Context(), worker, 1, 0)
		m.Must(err)
		_, err = m.Engine.Report(m.Context(), worker, []tasker.Outcome{
			{Lease: list[0].Lease(), Failure: &tasker.Failure{Message: "payload of shop", Type: "Declined"}},
		}, 0)
		m.Must(err)
		return task, list[0].StepUUID
	}
	complete, step := fail()
	_, err := m.Engine.OperateStep(m.Context(), complete, step, tasker.ActionRequest{Action: tasker.ResolveManually, Actor: "test", Reason: "r"})
	m.Must(err)
	task, step := fail()
	m.FindCases()
	o, _, err := operation.New(m.DB, m.Engine, m.DLQ, operation.Options{}).Plan(m.Context(), tasker.OperationPlan{
		Act: tasker.ActReset, Actor: "test", Reason: "test", Selection: tasker.OperationSelection{IDs: []tasker.ID{task}},
	})
	m.Must(err)
	h, err := hold.New(m.DB, m.Engine, hold.Options{}).Begin(m.Context(), tasker.NewHold{
		HoldScope: tasker.HoldScope{Namespace: "shop", Handler: "held"}, For: time.Hour, Owner: "test", Reason: "test",
	})
	m.Must(err)
	m.ids = map[string]string{
		"complete": complete.String(), "task": task.String(), "step": step.String(), "entry": m.Entry(task).UUID.String(),
		"asked": m.Create("asked").String(), "worker": worker.String(), "operation": o.UUID.String(), "hold": h.UUID.String(),
		"event":    m.text(`SELECT event_uuid::text FROM tasker.outbox WHERE task_uuid = $1 ORDER BY position LIMIT 1`, task),
		"schedule": m.schedule(),
	}
	m.ids["case"] = m.text(`SELECT case_id::text FROM tasker.cases ORDER BY state_since DESC LIMIT 1`)
	m.ids["incident"] = m.text(`INSERT INTO tasker.incidents (namespace, lead_case_id, dedup_key, severity)
		VALUES ('shop', $1::uuid, 'key', 'high') RETURNING incident_id::text`, m.ids["case"])
}

func (m *matrix) schedule() string {
	m.Helper()
	s, err := m.Engine.CreateSchedule(m.Context(), tasker.ScheduleSpec{
		Namespace: "shop", Name: "hourly", Template: "order", ScheduleRule: tasker.ScheduleRule{Every: time.Hour},
	}, engine.ScheduleChange{Actor: "test"})
	m.Must(err)
	return s.UUID.String()
}

func (m *matrix) text(sql string, args ...any) (text string) {
	m.Helper()
	m.Must(m.Admin().QueryRow(m.Context(), sql, args...).Scan(&text))
	return text
}

// interrupted cancels a command at its first output, as Ctrl-C does.
type interrupted struct {
	bytes.Buffer
	cancel func()
}

func (w *interrupted) Write(text []byte) (int, error) {
	defer w.cancel()
	return w.Buffer.Write(text)
}

// run runs a command as a caller.
func (m *matrix) run(command, caller string, flags ...string) (code int, stdout, stderr string) {
	m.Helper()
	args := append([]string{"tasker-ctl"}, append(flags, strings.Fields(command)...)...)
	for _, a := range strings.Fields(permits[command])[1:] {
		if name := strings.Trim(a, "{}"); strings.HasPrefix(a, "{") && name != "" {
			if a = m.ids[name]; a == "" {
				a = tasker.NewID().String()
			}
		}
		args = append(args, a)
	}
	ctx, cancel := context.WithCancel(m.Context())
	defer cancel()
	out := &interrupted{cancel: func() {}}
	if command == "dlq watch" {
		out.cancel = cancel
	}
	stdin := strings.Replace(oneStep, "orders", "shop", 1)
	if command == "case fingerprint" {
		stdin = `{"message": "disk full"}`
	}
	var errs bytes.Buffer
	env := map[string]string{"TASKER_URL": m.url, "TASKER_ACTOR": "ops", "TASKER_TOKEN": m.tokens[caller]}
	p := &program{in: strings.NewReader(stdin), out: out, err: &errs, env: env}
	code = p.main(ctx, args)
	return code, out.String(), errs.String()
}

// refuses checks that a command fails for a caller with an exit code and texts, and as JSON.
func (m *matrix) refuses(command, caller string, want int, texts ...string) {
	m.Helper()
	code, stdout, stderr := m.run(command, caller)
	if code != want || stdout != "" {
		m.Errorf("%s by %s: exit code %d, want %d: %s%s", command, caller, code, want, stdout, stderr)
	}
	for _, text := range texts {
		if !strings.Contains(stderr, text) {
			m.Errorf("%s by %s: the error lacks %q: %s", command, caller, text, stderr)
		}
	}
	if token := m.tokens[caller]; token != "" && strings.Contains(stderr, token) {
		m.Errorf("%s by %s prints the token", command, caller)
	}
	var e apiv1.Error
	if code, _, stderr = m.run(command, caller, "-o", "json"); code != want || json.Unmarshal([]byte(stderr), &e) != nil || e.Error.Code == "" {
		m.Errorf("%s by %s: exit code %d, not a JSON error: %s", command, caller, code, stderr)
	}
}

// Every command ends with the documented exit code for a caller without a key, without the
// permission, and of another namespace. The API's tests check each role on each route.
func TestPermissionsOfEveryCommand(t *testing.T) {
	t.Parallel()
	m := newMatrix(t)
	const whoami = "your permissions: tasker-ctl whoami"
	before, tested := m.Contents("audit_events"), 0
	leaves((&program{env: map[string]string{}}).newRootCommand("tasker-ctl"), func(c *cobra.Command) {
		command := strings.TrimPrefix(c.CommandPath(), "tasker-ctl ")
		needs, args, _ := strings.Cut(permits[command], " ")
		tested++
		if needs == public && command != "whoami" {
			if code, _, stderr := m.run(command, "anonymous"); code != cli.ExitOK {
				t.Errorf("%s without a key: exit code %d: %s", command, code, stderr)
			}
			return
		}
		m.refuses(command, "anonymous", cli.ExitError, "Error: authentication required",
			"set TASKER_TOKEN, or TASKER_TOKEN_FILE to a file", "tasker-ctl key create")
		m.refuses(command, "unknown", cli.ExitError, "Error: invalid API key: unknown, revoked or expired",
			"check TASKER_TOKEN, TASKER_TOKEN_FILE or --token-file")
		if needs == public {
			return
		}
		without := "worker@shop"
		if needs == "steps:complete" {
			without = "viewer@shop"
		}
		m.refuses(command, without, cli.ExitError, "Error: permission denied: key:"+without+" needs permission "+needs, whoami)
		named := strings.Contains(args, "{") || strings.Contains(args, "shop") || command == "template register"
		if named && !strings.HasPrefix(needs, "system:") {
			want, says := exitNotFound, "not found"
			if !strings.Contains(args, "{") || command == "operation plan" || command == "operation run" { // the request names the namespace
				want, says = cli.ExitError, "needs permission "+needs+" in namespace shop"
			}
			m.refuses(command, "admin@attic", want, says, whoami)
		}
	})
	if tested != len(permits) {
		t.Errorf("%d commands, and permits lists %d", tested, len(permits))
	}
	if after := m.Contents("audit_events"); after != before {
		t.Errorf("a refused command changed something:\n%s\nwas\n%s", after, before)
	}
	m.refuses("dlq export", "viewer@shop", cli.ExitError, "needs permission payloads:read")
	m.refuses("schedule change", "viewer@shop", cli.ExitError, "needs permission schedules:write")
	for command, line := range permits {
		needs, _, _ := strings.Cut(line, " ")
		if !strings.HasSuffix(needs, ":read") || needs == "system:read" || command == "dlq export" || command == "schedule change" || command == "drill clean" {
			continue
		}
		code, stdout, stderr := m.run(command, "viewer@shop")
		if code != cli.ExitOK || strings.Contains(stdout, "payload of") {
			t.Errorf("%s by a viewer: exit code %d: %s%s", command, code, stdout, stderr)
		}
	}
	if m.log.Len() > 0 {
		t.Errorf("the server's log: %s", &m.log)
	}
}
