// Package deploy has what runs Tasker's surroundings: alert rules and dashboards.
// Its tests read them as Prometheus does.
package deploy_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/dispatch"
	"tasker.example/tasker/internal/metrics"
	"tasker.example/tasker/internal/telemetry"
	"tasker.example/tasker/internal/testtool"
)

// promtool returns Prometheus's checker, which comes with it.
func promtool(t *testing.T) string {
	t.Helper()
	return testtool.Find(t, "promtool", "install the package prometheus")
}

func run(t *testing.T, dir, tool string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tool, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestAlertRules(t *testing.T) {
	tool := promtool(t)
	run(t, "prometheus", tool, "test", "rules", "tasker-alerts_test.yml")
	dir := t.TempDir() // with the token that the example reads
	if err := os.CopyFS(dir, os.DirFS("prometheus")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "prometheus.token"), []byte("tsk_x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, dir, tool, "check", "config", "prometheus.yml")
}

type rule struct {
	Alert       string
	Expr        string
	For         string
	Labels      map[string]string
	Annotations map[string]string
}

func rules(t *testing.T) map[string]rule {
	t.Helper()
	text, err := os.ReadFile("prometheus/tasker-alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct{ Groups []struct{ Rules []rule } }
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	all := map[string]rule{}
	for _, g := range doc.Groups {
		for _, r := range g.Rules {
			all[r.Alert] = r
		}
	}
	return all
}

// The rules of the documents ship as they stand there.
func TestTheRulesOfTheDocuments(t *testing.T) {
	all := rules(t)
	for _, want := range []rule{
		{Alert: "HighPendingDLQInvestigations", Expr: "tasker_dlq_pending_investigations > 50", For: "15m", Labels: map[string]string{"severity": "warning"}},
		{Alert: "SlowStalenessDetection", Expr: "tasker_staleness_detection_duration > 5000", For: "5m", Labels: map[string]string{"severity": "warning"}},
		{Alert: "HighStalenessRate", Expr: "rate(tasker_staleness_tasks_detected_total[5m]) > 10", For: "10m", Labels: map[string]string{"severity": "critical"}},
	} {
		got := all[want.Alert]
		if got.Expr != want.Expr || got.For != want.For || got.Labels["severity"] != want.Labels["severity"] {
			t.Errorf("%s is %+v", want.Alert, got)
		}
	}
	for name, r := range all {
		page, section, _ := strings.Cut(r.Annotations["runbook"], "#")
		text, err := os.ReadFile(filepath.Join("..", page))
		words := strings.ReplaceAll(section, "-", " ")
		if page == "" || err != nil || !strings.Contains(strings.ToLower(string(text)), "# "+words) {
			t.Errorf("%s has no runbook %s: %v", name, r.Annotations["runbook"], err)
		}
	}
}

var metricName = regexp.MustCompile(`\btasker_[a-z_]+`)

// A rule over a metric that is not there is silent for ever.
func TestEveryMetricThatIsAskedForExists(t *testing.T) {
	served := scrape(t)
	asked := map[string]string{}
	for _, r := range rules(t) {
		asked[r.Alert] = r.Expr
	}
	maps.Copy(asked, panels(t))
	for who, expr := range asked {
		for _, name := range metricName.FindAllString(expr, -1) {
			if !regexp.MustCompile(`(?m)^` + name + `[ {]`).MatchString(served) {
				t.Errorf("%s asks for %s, which nobody serves", who, name)
			}
		}
	}
}

// scrape returns what a server serves once everything has happened.
func scrape(t *testing.T) string {
	t.Helper()
	s, err := telemetry.Start(t.Context(), telemetry.Options{
		Log: slog.New(slog.DiscardHandler), Read: func(context.Context) (int64, []string, error) { return 1, []string{"default"}, nil },
		Dispatch: metrics.Sources{
			Backlogs: func(context.Context) ([]tasker.Backlog, error) {
				return []tasker.Backlog{{Namespace: "default"}}, nil
			},
			Broker: &metrics.BrokerSources{
				Outcomes: dispatch.Outcomes(), Up: func() bool { return true },
				Outbox:      func(context.Context) (int64, time.Duration, error) { return 0, 0, nil },
				DeadLetters: func(context.Context) (int64, error) { return 0, nil },
				Canary:      func(context.Context) (time.Time, error) { return time.Now(), nil },
			},
		},
		Emission: metrics.SinkSource{Sinks: []string{"webhook"}, Read: func(context.Context) ([]tasker.SinkState, error) {
			return []tasker.SinkState{{Sink: "webhook"}}, nil
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	err = s.ObserveLoops(func() []metrics.LoopCount { return []metrics.LoopCount{{Name: "retry steps"}} },
		func(context.Context) (map[string]int64, error) { return map[string]int64{"retry": 1}, nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := s.ObserveTemplates(0); err != nil {
		t.Fatal(err)
	}
	if err := s.ObserveDue(func(context.Context) (map[string]float64, error) { return map[string]float64{"schedule": 0}, nil }); err != nil {
		t.Fatal(err)
	}
	if err := s.ObserveSchedules(func(context.Context) (int64, error) { return 0, nil }); err != nil {
		t.Fatal(err)
	}
	if err := s.ObserveDeadlines(func(context.Context) (int64, error) { return 0, nil }); err != nil {
		t.Fatal(err)
	}
	if err := s.ObserveTaskRequests(func(context.Context) (int64, error) { return 0, nil }); err != nil {
		t.Fatal(err)
	}
	if err := s.ObserveStaleness(func(context.Context) ([]tasker.StalenessCount, error) { return nil, nil }); err != nil {
		t.Fatal(err)
	}
	if err := s.ObserveHolds(func(context.Context) ([]tasker.HoldGroup, error) { return nil, nil }, func() int64 { return 0 }); err != nil {
		t.Fatal(err)
	}
	s.Swept(t.Context(), time.Second, nil, nil)
	s.Resolved(t.Context(), tasker.ManualDLQ, tasker.EntryCancelled, time.Hour)
	s.DeadLetter(t.Context(), dispatch.LetterExpired, time.Second)
	s.Emitted(t.Context(), tasker.EntryCreatedTopic, "webhook", time.Second)
	var body string
	for range 2 { // the first has the series of namespaces made
		answer := httptest.NewRecorder()
		s.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		body = answer.Body.String()
	}
	return body
}

// panels returns the expressions of the dashboard by the panel's title.
func panels(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("grafana/tasker-dlq.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, p := range board.Panels {
		for _, q := range p.Targets {
			all[p.Title+" "+q.Expr] = q.Expr
		}
	}
	if len(all) == 0 {
		t.Fatal("the dashboard asks for nothing")
	}
	return all
}

// Prometheus understands every expression of the dashboard.
func TestTheDashboardsExpressions(t *testing.T) {
	tool := promtool(t)
	type recorded struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var list []recorded
	for _, expr := range panels(t) {
		list = append(list, recorded{Record: "panel:" + string(rune('a'+len(list)%26)) + string(rune('a'+len(list)/26)), Expr: strings.ReplaceAll(expr, "$__rate_interval", "1m")})
	}
	doc, err := yaml.Marshal(map[string]any{"groups": []map[string]any{{"name": "dashboard", "rules": list}}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(path, doc, 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, ".", tool, "check", "rules", path)
}
