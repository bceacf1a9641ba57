// Package overload measures worker latency while a server receives three times the create load it can
// serve.
//
// It runs the real server as a process of its own, on a private PostgreSQL with fsync as
// in production, and sends the flood from another process, of the lowest priority: in
// production both are on other machines.
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

// Options say how much is measured. Zero works for all of them.
type Options struct {
	Idle     time.Duration // of the measurement before; 30 s when 0
	For      time.Duration // that the flood lasts; 60 s when 0
	After    time.Duration // that is watched afterwards; 30 s when 0
	Factor   float64       // times what the server can take; 3 when 0
	Capacity float64       // creates a second that it can take; measured when 0
	Bulk     int           // tasks of each request of the flood; 1 when 0
	Server   []string      // more variables of the environment of the server
	Out      io.Writer     // tells of the progress
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

// warmUp is how long the steady load runs before it is measured.
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
