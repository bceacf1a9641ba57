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

	"tasker.example/tasker/internal/httpclient"
	"tasker.example/tasker/internal/metrics"
)

// Options configures a Service.
type Options struct {
	Version     string
	Environment string // of the server; optional
	Read        metrics.Read
	Dispatch    metrics.Sources // optional; ignored without Backlogs
	Emission    metrics.SinkSource
	Log         *slog.Logger
}

// A Service exports the metrics of a server.
type Service struct {
	*metrics.Metrics
	handler  http.Handler
	provider *sdk.MeterProvider
}

// maxSeries limits the number of series per metric. Further ones are combined in a series with the
// attribute otel_metric_overflow.
const maxSeries = 5000

// Start creates the metrics of a server. [Service.Handler] serves them to Prometheus. If
// OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_METRICS_ENDPOINT is set, they are also exported
// by OTLP, configured by the variables of OpenTelemetry.
func Start(ctx context.Context, o Options) (*Service, error) {
	registry := prometheus.NewRegistry()
	scraped, err := otelprometheus.New(otelprometheus.WithRegisterer(registry),
		otelprometheus.WithoutScopeInfo(), otelprometheus.WithoutTargetInfo())
	if err != nil {
		return nil, fmt.Errorf("create Prometheus metrics exporter: %w", err)
	}
	from, err := newResource(ctx, o)
	if err != nil {
		return nil, err
	}
	options := []sdk.Option{sdk.WithReader(scraped), sdk.WithResource(from), sdk.WithCardinalityLimit(maxSeries)}
	if enabled, err := isOTLPEnabled(); err != nil {
		return nil, err
	} else if enabled {
		sender, err := newOTLPClient()
		if err != nil {
			return nil, err
		}
		exporter, err := otlpmetrichttp.New(ctx, otlpmetrichttp.WithHTTPClient(sender))
		if err != nil {
			return nil, fmt.Errorf("create OTLP metrics exporter: %w", err)
		}
		options = append(options, sdk.WithReader(sdk.NewPeriodicReader(exporter)))
	}
	// OpenTelemetry has one error handler for the whole program.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		o.Log.Warn("could not export all metrics", "err", err)
	}))
	otel.SetLogger(logr.FromSlogHandler(o.Log.Handler()))
	provider := sdk.NewMeterProvider(options...)
	m, err := metrics.New(provider, o.Read, o.Log)
	if err != nil {
		return nil, errors.Join(err, provider.Shutdown(ctx))
	}
	if o.Dispatch.Backlogs != nil {
		if err := m.ObserveDispatch(o.Dispatch); err != nil {
			return nil, errors.Join(err, provider.Shutdown(ctx))
		}
	}
	if err := m.ObserveEmission(o.Emission); err != nil {
		return nil, errors.Join(err, provider.Shutdown(ctx))
	}
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		// Documented alerts use this name, and a histogram has no series with its bare name.
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tasker_staleness_detection_duration", Help: "Duration of the last run of this server's sweep, in milliseconds.",
		}, func() float64 { return float64(m.LastRun()) / float64(time.Millisecond) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tasker_build_info", Help: "Always 1; the label is the version.",
			ConstLabels: prometheus.Labels{"version": cmp.Or(o.Version, "dev")},
		}, func() float64 { return 1 }),
	)
	handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog: scrapeLog{o.Log}, ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: maxScrapes,
	})
	return &Service{Metrics: m, handler: handler, provider: provider}, nil
}

// scrapeLog logs errors of scrapes. It logs disconnected clients at debug level, because they
// cause an error for each remaining metric.
type scrapeLog struct{ log *slog.Logger }

// Println logs an error of the Prometheus handler.
func (l scrapeLog) Println(v ...any) {
	for _, x := range v {
		if err, ok := x.(error); ok && isDisconnect(err) {
			l.log.Debug("a client disconnected during a scrape", "err", err)
			return
		}
	}
	l.log.Error("a scrape failed", "err", strings.TrimSpace(fmt.Sprintln(v...)))
}

// isDisconnect reports whether an error means that the client has disconnected.
func isDisconnect(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, context.Canceled) || errors.Is(err, os.ErrDeadlineExceeded)
}

// maxScrapes limits concurrent scrapes. Further ones get status 503.
const maxScrapes = 4

// newResource returns the resource attributes. The standard variables of OpenTelemetry take
// precedence.
func newResource(ctx context.Context, o Options) (*resource.Resource, error) {
	about := []attribute.KeyValue{
		attribute.String("service.name", "tasker"), attribute.String("service.version", cmp.Or(o.Version, "dev")),
	}
	if o.Environment != "" {
		about = append(about, attribute.String("deployment.environment.name", o.Environment))
	}
	from, err := resource.New(ctx,
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithAttributes(about...), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return from, nil
}

// isOTLPEnabled reports whether the environment enables OTLP. It returns an error for unsupported
// settings.
func isOTLPEnabled() (bool, error) {
	exporters := strings.Split(cmp.Or(os.Getenv("OTEL_METRICS_EXPORTER"), "otlp"), ",")
	for _, e := range exporters {
		if e = strings.TrimSpace(e); e != "otlp" && e != "none" && e != "prometheus" {
			return false, fmt.Errorf("invalid OTEL_METRICS_EXPORTER %q: must be otlp or none (Prometheus is "+
				"always served at /metrics)", e)
		}
	}
	endpoint, from := lookupSetting("OTEL_EXPORTER_OTLP_ENDPOINT")
	if endpoint == "" || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || !slices.Contains(exporters, "otlp") {
		return false, nil
	}
	if u, err := url.Parse(endpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return false, fmt.Errorf("invalid %s %q: must be a URL such as http://127.0.0.1:4318", from, endpoint)
	}
	if p, from := lookupSetting("OTEL_EXPORTER_OTLP_PROTOCOL"); p != "" && p != "http/protobuf" {
		return false, fmt.Errorf("unsupported %s %q: set OTEL_EXPORTER_OTLP_METRICS_PROTOCOL=http/protobuf "+
			"with an endpoint that accepts it (port 4318 by default), or OTEL_METRICS_EXPORTER=none", from, p)
	}
	for _, name := range []string{"OTEL_METRIC_EXPORT_INTERVAL", "OTEL_METRIC_EXPORT_TIMEOUT"} {
		if v := os.Getenv(name); v != "" {
			if ms, err := strconv.Atoi(v); err != nil || ms < 1 {
				return false, fmt.Errorf("invalid %s %q: must be a positive number of milliseconds, such "+
					"as 60000", name, v)
			}
		}
	}
	return true, nil
}

// newOTLPClient returns the HTTP client for OTLP, with the timeout and the certificates from the
// environment.
func newOTLPClient() (*http.Client, error) {
	timeout, trusted, own := 10*time.Second, (*x509.CertPool)(nil), []tls.Certificate(nil)
	if text, from := lookupSetting("OTEL_EXPORTER_OTLP_TIMEOUT"); text != "" {
		ms, err := strconv.Atoi(text)
		if err != nil || ms < 1 {
			return nil, fmt.Errorf("invalid %s %q: must be a positive number of milliseconds, such "+
				"as 10000", from, text)
		}
		timeout = time.Duration(ms) * time.Millisecond
	}
	if file, from := lookupSetting("OTEL_EXPORTER_OTLP_CERTIFICATE"); file != "" {
		doc, err := os.ReadFile(file)
		if trusted = x509.NewCertPool(); err != nil || !trusted.AppendCertsFromPEM(doc) {
			return nil, errors.Join(fmt.Errorf("invalid %s %q: must be a file of PEM certificates", from, file), err)
		}
	}
	file, from := lookupSetting("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE")
	if key, _ := lookupSetting("OTEL_EXPORTER_OTLP_CLIENT_KEY"); file != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(file, key)
		if err != nil {
			return nil, fmt.Errorf("invalid %s %q: must be the file of a certificate with its key: %w", from, file, err)
		}
		own = append(own, pair)
	}
	c := httpclient.New(func(t *http.Transport) {
		t.TLSClientConfig = &tls.Config{RootCAs: trusted, Certificates: own, MinVersion: tls.VersionTLS12}
	})
	c.Timeout = timeout
	return c, nil
}

// lookupSetting returns the value and the name of an OTLP variable. The variant for metrics takes
// precedence.
func lookupSetting(name string) (value, from string) {
	from = strings.Replace(name, "OTLP_", "OTLP_METRICS_", 1)
	if value = os.Getenv(from); value != "" {
		return value, from
	}
	return os.Getenv(name), name
}

// Handler serves the metrics in Prometheus format.
func (s *Service) Handler() http.Handler { return s.handler }

// Stop exports the remaining metrics and stops the export.
func (s *Service) Stop(ctx context.Context) error {
	if err := s.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("export final metrics: %w", err)
	}
	return nil
}
