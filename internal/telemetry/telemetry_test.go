package telemetry_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"google.golang.org/protobuf/proto"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/metrics"
	"tasker.example/tasker/internal/telemetry"
)

func start(t *testing.T, pending int64) *telemetry.Service {
	t.Helper()
	s, err := telemetry.Start(t.Context(), telemetry.Options{
		Version: "1.2.3", Environment: "staging", Log: slog.New(slog.DiscardHandler),
		Read: func(context.Context) (int64, []string, error) { return pending, []string{"default"}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What is scraped carries the series that the documents' alert rules read, under
// labels of ours only.
func TestScrape(t *testing.T) {
	s := start(t, 77)
	s.EntryCreated(t.Context(), tasker.StalenessTimeout, "default")
	s.Swept(t.Context(), 6*time.Second, []metrics.Stale{
		{Reason: tasker.StalenessTimeout, Namespace: "default", State: tasker.TaskStepsInProcess, Transitioned: true},
	}, nil)
	answer := httptest.NewRecorder()
	s.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	body := answer.Body.String()
	if kind := answer.Header().Get("Content-Type"); answer.Code != http.StatusOK || !strings.HasPrefix(kind, "text/plain; version=0.0.4") {
		t.Fatalf("%d %s\n%s", answer.Code, kind, body)
	}
	for _, want := range []string{
		"tasker_dlq_pending_investigations 77",
		"tasker_staleness_detection_duration 6000",
		`tasker_dlq_entries_created_total{dlq_reason="staleness_timeout",namespace="default"} 1`,
		`tasker_staleness_tasks_detected_total{dlq_reason="staleness_timeout",namespace="default",state="steps_in_process"} 1`,
		`tasker_staleness_tasks_transitioned_to_error_total{dlq_reason="staleness_timeout",namespace="default",state="steps_in_process"} 1`,
		`tasker_staleness_detection_runs_total{outcome="success"} 1`,
		`tasker_staleness_detection_duration_milliseconds_bucket{le="5000"} 0`,
		`tasker_staleness_detection_duration_milliseconds_bucket{le="10000"} 1`,
		"tasker_staleness_detection_duration_milliseconds_sum 6000",
		`tasker_build_info{version="1.2.3"} 1`,
		"go_goroutines ",
	} {
		if !strings.Contains(body, "\n"+want) {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(body, "otel_") {
		t.Errorf("labels that are not ours:\n%s", body)
	}
}

// TestOTLP has a receiver of the protocol get what was counted, under the dotted
// names, once the server stops.
func TestOTLP(t *testing.T) {
	var mu sync.Mutex
	got := map[string]bool{}
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := read(r)
		var sent v1.ExportMetricsServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &sent)
		}
		if err != nil || r.URL.Path != "/v1/metrics" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, resource := range sent.GetResourceMetrics() {
			for _, a := range resource.GetResource().GetAttributes() {
				got[a.GetKey()+"="+a.GetValue().GetStringValue()] = true
			}
			for _, scope := range resource.GetScopeMetrics() {
				for _, m := range scope.GetMetrics() {
					got[m.GetName()+" "+m.GetUnit()] = true
				}
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	defer receiver.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
	t.Setenv("OTEL_SERVICE_NAME", "tasker-eu")
	s := start(t, 3)
	s.Swept(t.Context(), time.Second, nil, nil)
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{
		"tasker.staleness.detection.duration ms", "tasker.dlq.pending_investigations ", "tasker.staleness.detection_runs.total ",
		"service.name=tasker-eu", "service.version=1.2.3", "deployment.environment.name=staging",
	} {
		if !got[want] {
			t.Errorf("no %q among %v", want, got)
		}
	}
}

func read(r *http.Request) ([]byte, error) {
	if r.Header.Get("Content-Encoding") != "gzip" {
		return io.ReadAll(r.Body)
	}
	unzipped, err := gzip.NewReader(r.Body)
	if err != nil {
		return nil, err
	}
	var all bytes.Buffer
	_, err = all.ReadFrom(unzipped)
	return all.Bytes(), err
}

// What the library has to say is in our log, in our form.
func TestTroubleIsToldInTheLog(t *testing.T) {
	var said bytes.Buffer
	s, err := telemetry.Start(t.Context(), telemetry.Options{
		Log: slog.New(slog.NewJSONHandler(&said, nil)), Read: func(context.Context) (int64, []string, error) { return 0, nil, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	otel.Handle(errors.New("no route to host"))
	if !strings.Contains(said.String(), `"level":"WARN","msg":"could not export all metrics","err":"no route to host"`) {
		t.Errorf("said %s", &said)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A receiver that is not there costs a log line at the end and nothing else.
func TestNobodyReceives(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", gone.URL+"/v1/metrics")
	s := start(t, 0)
	s.EntryCreated(t.Context(), tasker.ManualDLQ, "a")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := s.Stop(ctx); err == nil || !strings.Contains(err.Error(), "export final metrics") {
		t.Errorf("stop says %v", err)
	}
}

// A collector that answers 101 and leaves the connection open delays no stop.
func TestOTLPFailsOnSwitchingProtocols(t *testing.T) {
	receiver := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		connection, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { connection.Close() })
		fmt.Fprint(connection, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
	}))
	t.Cleanup(receiver.Close)
	trusted := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(trusted, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: receiver.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", trusted)
	if err := start(t, 3).Stop(t.Context()); err == nil || !strings.Contains(err.Error(), "101 Switching Protocols") {
		t.Errorf("metrics are sent with %v", err)
	}
}

func TestOTLPSettings(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	for _, tt := range []struct {
		name  string
		env   map[string]string
		wrong string
	}{
		{"another protocol", map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL=http/protobuf"},
		{"its own protocol wins", map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/protobuf", "OTEL_METRICS_EXPORTER": "none"}, ""},
		{"switched off", map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_SDK_DISABLED": "true"}, ""},
		{"no scheme", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "localhost:4318"}, `invalid OTEL_EXPORTER_OTLP_ENDPOINT "localhost:4318"`},
		{"another scheme", map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "ftp://a"}, `invalid OTEL_EXPORTER_OTLP_METRICS_ENDPOINT "ftp://a"`},
		{"an interval with a unit", map[string]string{"OTEL_METRIC_EXPORT_INTERVAL": "5s"}, `invalid OTEL_METRIC_EXPORT_INTERVAL "5s"`},
		{"a timeout with a unit", map[string]string{"OTEL_EXPORTER_OTLP_TIMEOUT": "5s"}, `invalid OTEL_EXPORTER_OTLP_TIMEOUT "5s"`},
		{"no certificates", map[string]string{"OTEL_EXPORTER_OTLP_CERTIFICATE": "/nowhere"}, `invalid OTEL_EXPORTER_OTLP_CERTIFICATE "/nowhere"`},
		{"no key", map[string]string{"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": "/nowhere"}, `invalid OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE "/nowhere"`},
		{"another exporter", map[string]string{"OTEL_METRICS_EXPORTER": "console"}, `invalid OTEL_METRICS_EXPORTER "console"`},
		{"Prometheus only", map[string]string{"OTEL_METRICS_EXPORTER": "prometheus", "OTEL_EXPORTER_OTLP_ENDPOINT": "localhost"}, ""},
		{"attributes that are none", map[string]string{"OTEL_METRICS_EXPORTER": "none", "OTEL_RESOURCE_ATTRIBUTES": "a"}, "OTEL_RESOURCE_ATTRIBUTES"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for k, v := range tt.env {
				t.Setenv(k, v)
			}
			s, err := telemetry.Start(t.Context(), telemetry.Options{
				Log: slog.New(slog.DiscardHandler), Read: func(context.Context) (int64, []string, error) { return 0, nil, nil },
			})
			if err == nil {
				err = s.Stop(t.Context())
			}
			if tt.wrong == "" && err != nil || tt.wrong != "" && (err == nil || !strings.Contains(err.Error(), tt.wrong)) {
				t.Errorf("got %v, want %q", err, tt.wrong)
			}
		})
	}
}
