// Package telemetry exports metrics to Prometheus and OTLP.
package telemetry

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/httpclient"
	"tasker.example/tasker/internal/metrics"
)

// Options of what serves and sends the metrics of a server.
type Options struct {
	Version     string
	Environment string // the server's; "" for none
	Read        metrics.Read
	Dispatch    metrics.Sources // Backlogs nil: nothing of it is read
	Emission    metrics.SinkSource
	Log         *slog.Logger
}

// A Service is the metrics of a server with the ways out.
type Service struct {
	*metrics.Metrics
	handler  http.Handler
	provider *sdk.MeterProvider
}

// maxSeries bounds the series of one metric; what is beyond them is counted in
// one, with the attribute otel_metric_overflow.
const maxSeries = 5000

// Start makes the metrics of a server. They can be scraped at [Service.Handler];
// with OTEL_EXPORTER_OTLP_ENDPOINT, or OTEL_EXPORTER_OTLP_METRICS_ENDPOINT, they
// are also sent there, as the other variables of OpenTelemetry say.
func Start(ctx context.Context, o Options) (*Service, error) {
	registry := prometheus.NewRegistry()
	scraped, err := otelprometheus.New(otelprometheus.WithRegisterer(registry),
		otelprometheus.WithoutScopeInfo(), otelprometheus.WithoutTargetInfo())
	if err != nil {
		return nil, fmt.Errorf("metrics for Prometheus: %w", err)
	}
	from, err := origin(ctx, o)
	if err != nil {
		return nil, err
	}
	options := []sdk.Option{sdk.WithReader(scraped), sdk.WithResource(from), sdk.WithCardinalityLimit(maxSeries)}
	if asked, err := asksForOTLP(); err != nil {
		return nil, err
	} else if asked {
		sender, err := otlpClient()
		if err != nil {
			return nil, err
		}
		exporter, err := otlpmetrichttp.New(ctx, otlpmetrichttp.WithHTTPClient(sender))
		if err != nil {
			return nil, fmt.Errorf("metrics by OTLP: %w", err)
		}
		options = append(options, sdk.WithReader(sdk.NewPeriodicReader(exporter)))
	}
	// What goes wrong on the way is told where all else is. The library has one such
	// place for the whole program.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		o.Log.Warn("metrics could not be sent, or not all", "err", err)
	}))
	otel.SetLogger(logr.FromSlogHandler(o.Log.Handler()))
	provider := sdk.NewMeterProvider(options...)
	m, err := metrics.New(provider, o.Read, o.Log)
	if err != nil {
		return nil, errors.Join(err, provider.Shutdown(ctx))
	}
	if o.Dispatch.Backlogs != nil {
		if err := m.ObserveDispatch(provider, o.Dispatch); err != nil {
			return nil, errors.Join(err, provider.Shutdown(ctx))
		}
	}
	if err := m.ObserveEmission(provider, o.Emission); err != nil {
		return nil, errors.Join(err, provider.Shutdown(ctx))
	}
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		// A histogram has no series of its bare name, which an alert of the documents
		// reads; this has.
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tasker_staleness_detection_duration", Help: "What the last run of this server's sweep took, in milliseconds.",
		}, func() float64 { return float64(m.LastRun()) / float64(time.Millisecond) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tasker_build_info", Help: "1; the label says which version runs.",
			ConstLabels: prometheus.Labels{"version": cmp.Or(o.Version, "dev")},
		}, func() float64 { return 1 }),
	)
	handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog: scrapeLog{o.Log}, ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: maxScrapes,
	})
	return &Service{Metrics: m, handler: handler, provider: provider}, nil
}

// ObserveRequests adds the requests of the server; see [metrics.Metrics.ObserveRequests].
func (s *Service) ObserveRequests(counts func() []metrics.RequestCount, pace func() float64) error {
	return s.Metrics.ObserveRequests(s.provider, counts, pace)
}

// ObserveSchedules adds how schedules do; see [metrics.Metrics.ObserveSchedules].
func (s *Service) ObserveSchedules(failing func(context.Context) (int64, error)) error {
	return s.Metrics.ObserveSchedules(s.provider, failing)
}

// ObserveDeadlines adds how many tasks are overdue; see [metrics.Metrics.ObserveDeadlines].
func (s *Service) ObserveDeadlines(overdue func(context.Context) (int64, error)) error {
	return s.Metrics.ObserveDeadlines(s.provider, overdue)
}

// ObserveStaleness adds the tasks near their thresholds; see [metrics.Metrics.ObserveStaleness].
func (s *Service) ObserveStaleness(read func(context.Context) ([]tasker.StalenessCount, error)) error {
	return s.Metrics.ObserveStaleness(s.provider, read)
}

// ObserveDue adds how late work is that is due; see [metrics.Metrics.ObserveDue].
func (s *Service) ObserveDue(read func(context.Context) (map[string]float64, error)) error {
	return s.Metrics.ObserveDue(s.provider, read)
}

// ObserveLoops adds what the loops of the server do; see [metrics.Metrics.ObserveLoops].
func (s *Service) ObserveLoops(loops func() []metrics.LoopCount, deferred func(context.Context) (map[string]int64, error)) error {
	return s.Metrics.ObserveLoops(s.provider, loops, deferred)
}

// ObserveTemplates adds the template files that are broken; see [metrics.Metrics.ObserveTemplates].
func (s *Service) ObserveTemplates(broken int64) error {
	return s.Metrics.ObserveTemplates(s.provider, broken)
}

// ObserveHolds adds the holds that have not ended, and the breakers that cannot open; see [metrics.Metrics.ObserveHolds].
func (s *Service) ObserveHolds(read func(context.Context) ([]tasker.HoldGroup, error), unopened func() int64) error {
	return s.Metrics.ObserveHolds(s.provider, read, unopened)
}

// ObserveOperations adds the items of operations; see [metrics.Metrics.ObserveOperations].
func (s *Service) ObserveOperations(read func(context.Context) (map[tasker.ItemState]int64, error)) error {
	return s.Metrics.ObserveOperations(s.provider, read)
}

// A scrapeLog takes what goes wrong in answering a scrape. One that went away in the
// middle is nobody's error, and would be told once for each metric that was left.
type scrapeLog struct{ log *slog.Logger }

// Println logs what Prometheus's handler says.
func (l scrapeLog) Println(v ...any) {
	for _, x := range v {
		if err, ok := x.(error); ok && gone(err) {
			l.log.Debug("a scrape went away before its end", "err", err)
			return
		}
	}
	l.log.Error("a scrape failed", "err", strings.TrimSpace(fmt.Sprintln(v...)))
}

// gone reports whether an error says that the other side has hung up.
func gone(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, context.Canceled) || errors.Is(err, os.ErrDeadlineExceeded)
}

// maxScrapes is how many may scrape at once; others get 503.
const maxScrapes = 4

// origin says who sends: the standard variables win.
func origin(ctx context.Context, o Options) (*resource.Resource, error) {
	about := []attribute.KeyValue{attribute.String("service.name", "tasker"), attribute.String("service.version", cmp.Or(o.Version, "dev"))}
	if o.Environment != "" {
		about = append(about, attribute.String("deployment.environment.name", o.Environment))
	}
	from, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(), resource.WithAttributes(about...), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return from, nil
}

// asksForOTLP reports whether the environment asks for OTLP, or says what about it
// cannot be.
func asksForOTLP() (bool, error) {
	exporters := strings.Split(cmp.Or(os.Getenv("OTEL_METRICS_EXPORTER"), "otlp"), ",")
	for _, e := range exporters {
		if e = strings.TrimSpace(e); e != "otlp" && e != "none" && e != "prometheus" {
			return false, fmt.Errorf("OTEL_METRICS_EXPORTER names %q: give otlp or none (Prometheus is always served at /metrics)", e)
		}
	}
	endpoint, from := setting("OTEL_EXPORTER_OTLP_ENDPOINT")
	if endpoint == "" || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || !slices.Contains(exporters, "otlp") {
		return false, nil
	}
	if u, err := url.Parse(endpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return false, fmt.Errorf("%s is %q: give a URL, such as http://127.0.0.1:4318", from, endpoint)
	}
	if p, from := setting("OTEL_EXPORTER_OTLP_PROTOCOL"); p != "" && p != "http/protobuf" {
		return false, fmt.Errorf("%s is %q: metrics are sent as http/protobuf only; set OTEL_EXPORTER_OTLP_METRICS_PROTOCOL=http/protobuf "+
			"with an endpoint that takes it (port 4318 by default), or OTEL_METRICS_EXPORTER=none", from, p)
	}
	for _, name := range []string{"OTEL_METRIC_EXPORT_INTERVAL", "OTEL_METRIC_EXPORT_TIMEOUT"} {
		if v := os.Getenv(name); v != "" {
			if ms, err := strconv.Atoi(v); err != nil || ms < 1 {
				return false, fmt.Errorf("%s is %q: give milliseconds, such as 60000", name, v)
			}
		}
	}
	return true, nil
}

// otlpClient returns the client that sends metrics, with the timeout and the certificates that
// the environment names.
func otlpClient() (*http.Client, error) {
	timeout, trusted, own := 10*time.Second, (*x509.CertPool)(nil), []tls.Certificate(nil)
	if text, from := setting("OTEL_EXPORTER_OTLP_TIMEOUT"); text != "" {
		ms, err := strconv.Atoi(text)
		if err != nil || ms < 1 {
			return nil, fmt.Errorf("%s is %q: give milliseconds, such as 10000", from, text)
		}
		timeout = time.Duration(ms) * time.Millisecond
	}
	if file, from := setting("OTEL_EXPORTER_OTLP_CERTIFICATE"); file != "" {
		doc, err := os.ReadFile(file)
		if trusted = x509.NewCertPool(); err != nil || !trusted.AppendCertsFromPEM(doc) {
			return nil, errors.Join(fmt.Errorf("%s is %q: give a file of PEM certificates", from, file), err)
		}
	}
	file, from := setting("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE")
	if key, _ := setting("OTEL_EXPORTER_OTLP_CLIENT_KEY"); file != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(file, key)
		if err != nil {
			return nil, fmt.Errorf("%s is %q: give the files of a certificate and its key: %w", from, file, err)
		}
		own = append(own, pair)
	}
	c := httpclient.New(func(t *http.Transport) {
		t.TLSClientConfig = &tls.Config{RootCAs: trusted, Certificates: own, MinVersion: tls.VersionTLS12}
	})
	c.Timeout = timeout
	return c, nil
}

// setting returns a variable of the exporter, of which that for metrics wins, and
// the name under which it was given.
func setting(name string) (value, from string) {
	from = strings.Replace(name, "OTLP_", "OTLP_METRICS_", 1)
	if value = os.Getenv(from); value != "" {
		return value, from
	}
	return os.Getenv(name), name
}

// Handler serves the metrics in the format of Prometheus.
func (s *Service) Handler() http.Handler { return s.handler }

// Stop sends what has not been sent yet.
func (s *Service) Stop(ctx context.Context) error {
	if err := s.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("send the last metrics: %w", err)
	}
	return nil
}
