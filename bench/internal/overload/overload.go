// Package overload measures worker latency while a server receives three times the create load it can
// serve.
//
// It runs the real server as a process on a private PostgreSQL with fsync, as in production. The
// flood comes from another process with the lowest priority, because it comes from other machines
// in production.
package overload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"tasker.example/tasker/bench/internal/private"
)

// Options configures a run. All fields are optional.
type Options struct {
	Idle     time.Duration // duration of the measurement before the flood; default 30 s
	For      time.Duration // duration of the flood; default 60 s
	After    time.Duration // duration of the measurement after it; default 30 s
	Factor   float64       // multiple of the capacity; default 3
	Capacity float64       // create requests per second; measured by default
	Bulk     int           // tasks per request of the flood; default 1
	Server   []string      // additional environment variables of the server
	Out      io.Writer     // for progress messages
}

func (o *Options) fill() {
	o.Idle = cmp.Or(o.Idle, 30*time.Second)
	o.For = cmp.Or(o.For, time.Minute)
	o.After = cmp.Or(o.After, 30*time.Second)
	o.Factor = cmp.Or(o.Factor, 3)
	o.Bulk = cmp.Or(o.Bulk, 1)
	if o.Out == nil {
		o.Out = io.Discard
	}
}

// warmUp is the time of the steady load before the measurement.
const warmUp = 5 * time.Second

// Run measures.
func Run(ctx context.Context, o Options) (report Report, err error) {
	o.fill()
	stop, database, err := private.Start(ctx, o.Out)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	s, err := startServer(ctx, database, o.Server)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	report.Bulk = o.Bulk
	if report.Capacity = o.Capacity; report.Capacity == 0 {
		say(o, "measuring how many creates the server can take …")
		if report.Capacity, err = s.capacity(ctx, o.Bulk); err != nil {
			return report, err
		}
	}
	st, err := s.startSteady(ctx)
	if err != nil {
		return report, err
	}
	defer st.stop()
	if err := rest(ctx, warmUp); err != nil {
		return report, err
	}
	say(o, "measuring without the flood for %v …", o.Idle)
	before := time.Now()
	if err := rest(ctx, o.Idle); err != nil {
		return report, err
	}
	begun := time.Now()
	say(o, "sending %.0f requests a second to create %d tasks each, for %v …", report.Capacity*o.Factor, o.Bulk, o.For)
	if report.Flood, err = s.flood(ctx, report.Capacity*o.Factor, o.For, o.Bulk); err != nil {
		return report, err
	}
	ended := time.Now()
	say(o, "watching for %v more …", o.After)
	if err := rest(ctx, o.After); err != nil {
		return report, err
	}
	report.summarize(o, st, before, begun, ended)
	if report.Lost, report.Investigations, err = s.damage(ctx); err != nil {
		return report, err
	}
	return report, nil
}

func say(o Options, format string, args ...any) { _, _ = fmt.Fprintf(o.Out, format+"\n", args...) }

func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
