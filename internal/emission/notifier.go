package emission

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/notice"
	"tasker.example/tasker/internal/postgres"
)

// TellerOptions are those of a teller. DB must be given.
type TellerOptions struct {
	DB           *postgres.DB
	Installation string // part of the key of each incident
	Routes       notice.Routes
	Wake         func() // tells the relay that there is something to send; nil: nobody
	Log          *slog.Logger
}

// A Notifier writes due case messages and routes all messages. Any number may run.
type Notifier struct {
	TellerOptions
	next time.Time // when to look at the cases; of the one loop
}

// The loop of a teller. Cases are counted for it, so it rests for many times what that took.
const (
	notifyInterval = 5 * time.Second
	tellTimeout    = 30 * time.Second
	tellRest       = 20
	routeBatch     = 200

	keepMessages = 90 * 24 * time.Hour
	pruneBatch   = 1000
)

// NewTeller returns a teller, which does nothing before its loop runs.
func NewTeller(o TellerOptions) *Notifier {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Wake == nil {
		o.Wake = func() {}
	}
	return &Notifier{TellerOptions: o}
}

// Loops returns what the teller does by itself.
func (t *Notifier) Loops() []*loop.Loop {
	return []*loop.Loop{
		{Name: "messages", Interval: notifyInterval, Timeout: tellTimeout, Pass: t.pass, Log: t.Log},
		{Name: "tidy up messages", Interval: time.Minute, Timeout: tellTimeout, Optional: true, Pass: t.Tidy, Log: t.Log},
	}
}

// Tidy removes messages older than 90 days.
func (t *Notifier) Tidy(ctx context.Context) (time.Duration, error) {
	p, err := t.DB.PruneMessages(ctx, keepMessages, pruneBatch)
	if p.Unsent > 0 {
		t.Log.WarnContext(ctx, "messages were removed after 90 days that not all of their sinks had taken", "unsent", p.Unsent)
	}
	if err == nil && p.Removed == pruneBatch {
		return loop.AtOnce, nil
	}
	return 0, err
}

// pass writes messages about cases and routes all messages. What others have written is
// routed although cases cannot be counted, or take longer than they may.
func (t *Notifier) pass(ctx context.Context) (time.Duration, error) {
	var told error
	if began := time.Now(); !began.Before(t.next) {
		limited, cancel := context.WithTimeout(ctx, tellTimeout/2)
		told = t.CreateDue(limited)
		cancel()
		t.next = began.Add(tellRest * time.Since(began))
	}
	return 0, errors.Join(told, t.Route(ctx))
}

// CreateDue writes the messages about cases and about paused operations that are due now.
func (t *Notifier) CreateDue(ctx context.Context) error {
	topics, err := t.DB.CreateDueNotifications(ctx, t.Installation)
	if err == nil && len(topics) > 0 {
		t.Log.InfoContext(ctx, "wrote messages about cases", "topics", topics)
	}
	return errors.Join(err, t.DB.TellPauses(ctx))
}

// Route puts messages on the lists of their sinks, and wakes who sends them.
func (t *Notifier) Route(ctx context.Context) error {
	for {
		n, err := t.DB.RouteMessages(ctx, routeBatch, t.choose)
		if err != nil {
			return err
		}
		if n < routeBatch {
			break
		}
	}
	pending, err := t.DB.MessagesPending(ctx)
	if pending { // also what another server has routed
		t.Wake()
	}
	return err
}

func (t *Notifier) choose(m tasker.Notification, told []string) []string {
	var data tasker.NotificationData
	if err := json.Unmarshal(m.Data, &data); err != nil {
		t.Log.Error("a message cannot be read; it goes to the sinks of messages without a route", "message", m.UUID, "err", err)
		return t.Routes.Default
	}
	return t.Routes.Choose(m.Topic, m.Escalation, data, told)
}

// A Trial is a message with which somebody tries the routes.
type Trial struct {
	Namespace string // of what it pretends to be about
	Template  string
	Severity  tasker.Severity // empty means low
	Reason    tasker.Reason
	Cause     string // stands for the text of an error
	Actor     string
}

// TestResult is what became of a [TestNotification].
type TestResult struct {
	SubjectID tasker.ID // of the message
	Routes    []int     // the numbers of those that are for it, from 1; the first counts
	Sinks     []string  // that get it
}

// SendTest sends a test message by the first matching route, or returns Invalid.
func (t *Notifier) SendTest(ctx context.Context, p Trial) (TestResult, error) {
	if p.Severity == "" {
		p.Severity = tasker.Low
	}
	if err := p.check(); err != nil {
		return TestResult{}, err
	}
	data := notice.TestNotification(p.Namespace, p.Actor, time.Now())
	data.Template, data.Severity, data.Reason, data.Text = p.Template, p.Severity, p.Reason, p.Cause
	id, err := t.DB.CreateTestNotification(ctx, data, p.Actor)
	if err != nil {
		return TestResult{}, err
	}
	out := TestResult{SubjectID: id, Routes: t.Routes.Match(tasker.TestTopic, data), Sinks: t.Routes.Choose(tasker.TestTopic, 0, data, nil)}
	return out, t.Route(ctx)
}

func (p Trial) check() error {
	switch {
	case p.Namespace == "":
		return tasker.Errorf(tasker.Invalid, "namespace is missing: routes are asked for a message about something in one")
	case !notice.KnownSeverity(p.Severity):
		return tasker.Errorf(tasker.Invalid, "severity must be critical, high, medium or low, not %q", p.Severity)
	}
	return nil
}
