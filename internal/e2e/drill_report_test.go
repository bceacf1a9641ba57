package e2e

import (
	"fmt"
	"strings"
	"time"
)

// A pace is how many steps were completed in a second, on average: before the
// outage, during it, and when all was well again.
type pace struct{ before, during, after float64 }

func (p pace) ratio() float64 { return p.during / max(p.before, 1) }

// steps measures throughput in spans in which the server runs.
func (d *drill) steps() pace {
	d.Helper()
	var during []span
	from := d.times.cut.Add(d.settling)
	for _, k := range d.times.kills {
		during = append(during, span{from, k.from})
		from = k.to.Add(d.settling)
	}
	during = append(during, span{from, d.times.restored})
	return pace{
		before: d.throughput(span{d.times.begun.Add(d.settling), d.times.cut}),
		during: d.throughput(during...),
		after:  d.throughput(span{d.times.drained, d.times.ended}),
	}
}

func (d *drill) throughput(spans ...span) float64 {
	d.Helper()
	steps, total := 0, time.Duration(0)
	for _, s := range spans {
		if s.to.After(s.from) {
			total += s.to.Sub(s.from)
			steps += d.number(`SELECT count(*) FROM tasker.workflow_step_transitions WHERE to_state = 'complete' AND created_at >= $1 AND created_at < $2`, s.from, s.to)
		}
	}
	return float64(steps) / max(total.Seconds(), 0.001)
}

// A drain is how a sink got what had happened while it was down.
type drain struct {
	backlog int
	first   time.Duration // from when it was up again until it had taken something
	took    time.Duration // from then until it had all of the backlog
	rate    float64       // events/s meanwhile, new ones included
}

func (d *drill) drain(sink string, up time.Time) (r drain) {
	d.Helper()
	r.backlog = d.number(`
		SELECT count(*) FROM tasker.emissions e JOIN tasker.outbox o USING (position)
		WHERE e.sink = $1 AND o.created_at < $2 AND e.published_at > $2`, sink, d.times.restored)
	if r.backlog == 0 {
		return r
	}
	var from, to time.Time
	must(d.T, d.pool.QueryRow(d.Context(), `
		SELECT min(e.published_at), max(e.published_at) FROM tasker.emissions e JOIN tasker.outbox o USING (position)
		WHERE e.sink = $1 AND o.created_at < $2 AND e.published_at > $2`, sink, d.times.restored).Scan(&from, &to))
	r.first, r.took = from.Sub(up), to.Sub(from)
	sent := d.number(`SELECT count(*) FROM tasker.emissions WHERE sink = $1 AND published_at > $2 AND published_at <= $3`, sink, from, to)
	r.rate = float64(sent) / max(r.took.Seconds(), 0.001)
	return r
}

// report is what the drill has shown.
func (d *drill) report() string {
	d.Helper()
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	t := d.times
	say("the drill")
	say("  outage       %s, both buses; the server was killed after %s and %s, and was back after %s and %s",
		short(t.restored.Sub(t.cut)), short(t.kills[0].from.Sub(t.cut)), short(t.kills[1].from.Sub(t.cut)),
		short(t.kills[0].to.Sub(t.kills[0].from)), short(t.kills[1].to.Sub(t.kills[1].from)))
	events := d.events()
	say("  happened     %d investigations (%d in the outage), %d events, %d of them lost", d.number(`SELECT count(*) FROM tasker.tasks_dlq`),
		d.number(`SELECT count(*) FROM tasker.tasks_dlq WHERE dlq_timestamp BETWEEN $1 AND $2`, t.cut, t.restored),
		len(events), d.hook.missing(events)+d.bus.missing(events))
	d.triage.mu.Lock()
	say("  triage       the queue was read %d times in the outage, and listed %d of the %d investigations", d.triage.reads,
		d.triage.opened-d.triage.unlisted, d.triage.opened)
	d.triage.mu.Unlock()
	for _, s := range []struct {
		name  string
		up    time.Time
		c     *consumer
		again int64
	}{{"webhook", t.hookUp, &d.hook.consumer, 0}, {"rabbitmq", t.busUp, &d.bus.consumer, d.bus.sent.Load()}} {
		r := d.drain(s.name, s.up)
		say("  %-12s received %d, %d of them again (%d by the broker itself); %d failures counted", s.name,
			s.c.count(), s.c.count()-s.c.distinct(), s.again,
			d.number(`SELECT count(*) FROM tasker.audit_events WHERE action = 'dlq.emit_failed' AND data ->> 'sink' = $1`, s.name))
		say("               backlog %d; the first taken %s after it was up again, all %s later: %.0f events/s", r.backlog, short(r.first), short(r.took), r.rate)
	}
	p := d.steps()
	say("  steps        %.1f/s before, %.1f/s in the outage (%+.1f %%), %.1f/s after (%+.1f %%)",
		p.before, p.during, 100*(p.ratio()-1), p.after, 100*(p.after/max(p.before, 1)-1))
	return b.String()
}

func short(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
