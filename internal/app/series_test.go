package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/pgtest"

	"tasker.example/tasker"
)

// A flood sends requests over connections that are used again.
type flood struct {
	*server
	http *http.Client
}

func (f *flood) send(method, path, body string) int {
	f.Helper()
	r, err := http.NewRequestWithContext(f.Context(), method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := f.http.Do(r)
	if err != nil {
		f.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// failEverywhere registers a template in each of some namespaces, runs a task of it, and has
// its step fail for good with an error of another type each. It returns how many have.
func (f *flood) failEverywhere(c *client.Client, namespaces int) (failed int) {
	f.Helper()
	must := func(err error) {
		f.Helper()
		if err != nil {
			f.Fatal(err)
		}
	}
	const together = 100 // namespaces of one worker
	for first := 0; first < namespaces; first += together {
		w := apiv1.RegisterWorker{Name: fmt.Sprint("worker-", first), MaxConcurrency: together}
		var tasks []apiv1.CreateTask
		for i := first; i < first+together; i++ {
			namespace, handler := fmt.Sprintf("team-%04d", i), fmt.Sprintf("handler_%d", i)
			_, err := c.RegisterTemplate(f.Context(), fmt.Appendf(nil, `{"namespace": %q, "name": "flow_%d", "version": "1.0.%d",
				"steps": [{"name": "step_%d", "handler": {"callable": %q}}]}`, namespace, i, i, i, handler), "application/json")
			must(err)
			w.Namespaces, w.Handlers = append(w.Namespaces, namespace), append(w.Handlers, handler)
			tasks = append(tasks, apiv1.CreateTask{Namespace: namespace, Name: fmt.Sprint("flow_", i), Context: json.RawMessage(`{}`), Priority: i, Tags: []string{namespace}, Initiator: namespace})
		}
		_, err := c.CreateTasks(f.Context(), tasks)
		must(err)
		r, err := c.RegisterWorker(f.Context(), w)
		must(err)
		var id tasker.ID
		err = id.UnmarshalText([]byte(r.WorkerUUID))
		must(err)
		claimed, err := c.Claim(f.Context(), id, apiv1.ClaimSteps{Max: together, WaitMS: 1000})
		must(err)
		report := apiv1.ReportResults{}
		for i, s := range claimed.Steps {
			report.Results = append(report.Results, apiv1.Result{StepUUID: s.StepUUID, LeaseToken: s.LeaseToken, Error: &apiv1.ResultError{
				Message: "no", Type: fmt.Sprintf("kaboom_%d_%d", first, i), Retryable: new(false),
			}})
		}
		answer, err := c.Report(f.Context(), id, report)
		must(err)
		failed += len(answer.Accepted)
	}
	return failed
}

var sample = regexp.MustCompile(`(?m)^(\w+)(\{[^\n]*\})? (\S+)$`)

// Whatever names callers send, a server has a bounded number of series, and what has none
// of its own is counted in that of all others.
func TestWhatCallersSendMakesNoSeriesWithoutBound(t *testing.T) {
	t.Parallel()
	s := start(t, options(pgtest.New(t).URL))
	transport := &http.Transport{MaxIdleConnsPerHost: 4}
	defer transport.CloseIdleConnections()
	f := &flood{s, &http.Client{Transport: transport, Timeout: patience}}
	c, err := client.New(s.url, client.WithHTTPClient(f.http))
	if err != nil {
		t.Fatal(err)
	}
	count := func() (series int, created map[string]float64) {
		status, text, err := s.get("/metrics")
		if err != nil || status != http.StatusOK {
			t.Fatalf("scrape: %d, %v", status, err)
		}
		created = map[string]float64{}
		for _, m := range sample.FindAllStringSubmatch(text, -1) {
			series++
			if m[1] == "tasker_dlq_entries_created_total" {
				value, err := strconv.ParseFloat(m[3], 64)
				if err != nil {
					t.Fatal(err)
				}
				created[m[2]] += value
			}
		}
		for _, word := range []string{"nowhere-", "METHOD", "worker-", "kaboom", "handler_", "flow_", "step_", "key-"} {
			if at := strings.Index(text, word); at >= 0 {
				t.Errorf("a label has what callers sent: %s", text[max(0, at-60):at+60])
			}
		}
		return series, created
	}
	before, _ := count()
	for i := range 2000 {
		f.send(http.MethodGet, fmt.Sprintf("/nowhere-%d?key-%d=1", i, i), "")
	}
	for i := range 500 {
		f.send(fmt.Sprintf("METHOD%d", i), "/v1/tasks", "")
		f.send(http.MethodPost, "/v1/keys", fmt.Sprintf(`{"name": "key-%d", "grants": ["viewer@%d"]}`, i, i))
	}
	// Meanwhile loops of the server may have begun to count something. Each word would make 500 series at least.
	if after, _ := count(); after > before+50 {
		t.Errorf("unknown paths, methods and keys made %d series of %d", after, before)
	}
	const namespaces = 400
	failed := f.failEverywhere(c, namespaces)
	if failed != namespaces {
		t.Fatalf("%d steps have failed, want %d", failed, namespaces)
	}
	series, created := count()
	sum, others, own := 0.0, 0.0, 0
	for labels, n := range created {
		sum += n
		if strings.Contains(labels, `namespace="(other)"`) {
			others += n
		} else if n > 0 {
			own++
		}
	}
	if sum != namespaces || others == 0 || own+int(others) != namespaces || own > 200 {
		t.Errorf("%v investigations are counted, %v of them as of others, in %d namespaces of their own; want %d, and at most 200", sum, others, own, namespaces)
	}
	if series > 5000 {
		t.Errorf("%d series after %d namespaces, want at most 5000", series, namespaces)
	}
	t.Logf("%d series before, %d after", before, series)
}
