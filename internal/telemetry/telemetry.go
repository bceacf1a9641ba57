// Package telemetry is the ways out of a server's metrics: Prometheus fetches
// them, and OTLP sends them if the environment asks for it.
package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"

	"tasker/internal/metrics"
)

// Options of what serves and sends the metrics of a server.
type Options struct {
	Version     string
	Environment string // the server's; "" for none
	Read        metrics.Read
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
		exporter, err := otlpmetrichttp.New(ctx)
		if err != nil {
			return nil, fmt.Errorf("metrics by OTLP: %w", err)
		}
		options = append(options, sdk.WithReader(sdk.NewPeriodicReader(exporter)))
	}
	provider := sdk.NewMeterProvider(options...)
	m, err := metrics.New(provider, o.Read, o.Log)
	if err != nil {
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
		ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelError), ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: maxScrapes,
	})
	return &Service{Metrics: m, handler: handler, provider: provider}, nil
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

// asksForOTLP reports whether the environment asks for OTLP.
func asksForOTLP() (bool, error) {
	const endpoint, protocol = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL"
	forMetrics := func(name string) string {
		return cmp.Or(os.Getenv(strings.Replace(name, "OTLP_", "OTLP_METRICS_", 1)), os.Getenv(name))
	}
	if forMetrics(endpoint) == "" || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_METRICS_EXPORTER") == "none" {
		return false, nil
	}
	if p := forMetrics(protocol); p != "" && p != "http/protobuf" {
		return false, fmt.Errorf("%s is %q: metrics are sent as http/protobuf only; set OTEL_EXPORTER_OTLP_METRICS_PROTOCOL=http/protobuf "+
			"with an endpoint that takes it (port 4318 by default), or OTEL_METRICS_EXPORTER=none", protocol, p)
	}
	return true, nil
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
