package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/childproc"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/testtool"
)

// A Prometheus with the rules that we ship scrapes a server whose queue has grown too long, and the
// alert of the documents becomes pending. The server asks who is calling, and Prometheus has a key.
func TestPrometheusAlertsOnALongQueue(t *testing.T) {
	t.Parallel()
	prometheus := testtool.Find(t, "prometheus", "install the package prometheus")
	database := pgtest.New(t)
	database.CheckAtEnd(t)
	server := serve(t, database.URL, askingEnv).url()
	admin := signedIn{t, server, bootstrap(t, database.URL)}
	watch := startPrometheus(t, prometheus, strings.TrimPrefix(server, "http://"), admin.key("prometheus", "viewer@*"))

	c := admin.client()
	order := apiv1.CreateTask{Namespace: "order_processing", Name: "fulfill_order", Context: json.RawMessage(`{"order_id": 7}`)}
	made, err := c.CreateTasks(t.Context(), slices.Repeat([]apiv1.CreateTask{order}, 51))
	must(t, err)
	for i, task := range made.Tasks {
		if i == 50 { // are not too many
			await(t, "50 open investigations in Prometheus", func() bool { return watch.value("tasker_dlq_pending_investigations") == "50" })
			if alerts := watch.alerts(); alerts["HighPendingDLQInvestigations"] != "" {
				t.Errorf("alerts at 50: %v", alerts)
			}
		}
		_, err := c.OpenEntry(t.Context(), readID(t, task.TaskUUID.String()), apiv1.OpenEntry{Reason: "odd", CreatedBy: "ann"})
		must(t, err)
	}
	await(t, "the alert", func() bool { return watch.alerts()["HighPendingDLQInvestigations"] == "pending" })
	await(t, "the investigations that were opened", func() bool {
		return watch.value(`sum(tasker_dlq_entries_created_total{dlq_reason="manual_dlq"})`) != ""
	})
}

// A watcher is a Prometheus.
type watcher struct {
	t      *testing.T
	url    string
	client *http.Client
}

func startPrometheus(t *testing.T, program, target, token string) watcher {
	t.Helper()
	rules, err := filepath.Abs("../../deploy/prometheus/tasker-alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: 500ms, evaluation_interval: 500ms, scrape_timeout: 500ms}\nrule_files: [%q]\n"+
		"scrape_configs:\n  - job_name: tasker\n    authorization: {credentials_file: prometheus.token}\n    static_configs: [{targets: [%q]}]\n", rules, target)
	must(t, os.WriteFile(filepath.Join(dir, "prometheus.token"), []byte(token+"\n"), 0o600))
	path := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	listen := freeAddress(t)
	start(t, nil, program, "--config.file="+path, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+listen, "--log.level=warn")
	w := watcher{t: t, url: "http://" + listen, client: &http.Client{Timeout: patience}}
	await(t, "Prometheus", func() bool { return w.value(`up{job="tasker"}`) == "1" })
	return w
}

// freeAddress is one that nobody listened on a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	ports, err := childproc.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0])
}

// ask returns the data of an answer of Prometheus's API; empty while it has none.
func (w watcher) ask(path string, into any) {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.url+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	answer, err := w.client.Do(request)
	if err != nil {
		return // it is starting up
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		return
	}
	if err := json.Unmarshal(body, into); err != nil {
		w.t.Fatalf("%s: %v: %s", path, err, body)
	}
}

// value is what an expression is now, if it is one number.
func (w watcher) value(expr string) string {
	w.t.Helper()
	var answer struct {
		Data struct{ Result []struct{ Value [2]any } }
	}
	w.ask("/api/v1/query?query="+url.QueryEscape(expr), &answer)
	if len(answer.Data.Result) != 1 {
		return ""
	}
	return fmt.Sprint(answer.Data.Result[0].Value[1])
}

// alerts are those that are not silent, with their state.
func (w watcher) alerts() map[string]string {
	w.t.Helper()
	var answer struct {
		Data struct {
			Alerts []struct {
				Labels map[string]string
				State  string
			}
		}
	}
	w.ask("/api/v1/alerts", &answer)
	all := map[string]string{}
	for _, a := range answer.Data.Alerts {
		all[a.Labels["alertname"]] = a.State
	}
	return all
}
