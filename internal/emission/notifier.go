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

// NotifierOptions configures a Notifier. Only DB is required.
type NotifierOptions struct {
	DB           *postgres.DB
	Installation string // part of the deduplication keys of incidents
	Routes       notice.Routes
	Wake         func() // wakes the relay
	Log          *slog.Logger
}

// A Notifier creates notifications about cases when they are due and routes all notifications.
// Several notifiers may run concurrently.
type Notifier struct {
	NotifierOptions
	next time.Time // time of the next pass over the cases; used by one loop only
}

// Counting cases is expensive, so a pass is followed by a pause of notifyPause times its duration.
const (
	notifyInterval = 5 * time.Second
	notifyTimeout  = 30 * time.Second
	notifyPause    = 20 // multiple of the duration of the pass
	routeBatch     = 200
)

// NewNotifier returns a Notifier with defaults for the optional fields.
func NewNotifier(o NotifierOptions) *Notifier {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Wake == nil {
		o.Wake = func() {}
	}
	return &Notifier{NotifierOptions: o}
}

// Loops returns the background loop of the notifier.
func (t *Notifier) Loops() []*loop.Loop {
	return []*loop.Loop{
		{Name: "messages", Interval: notifyInterval, Timeout: notifyTimeout, Pass: t.pass, Log: t.Log},
	}
}

// pass creates notifications about cases and routes all notifications. It routes them even if
// counting the cases fails or takes too long.
func (t *Notifier) pass(ctx context.Context) (time.Duration, error) {
	var failed error
	if began := time.Now(); !began.Before(t.next) {
		limited, cancel := context.WithTimeout(ctx, notifyTimeout/2)
		failed = t.CreateDue(limited)
		cancel()
		t.next = began.Add(notifyPause * time.Since(began))
	}
	return 0, errors.Join(failed, t.Route(ctx))
}

// CreateDue creates the notifications about cases and paused operations that are due.
func (t *Notifier) CreateDue(ctx context.Context) error {
	topics, err := t.DB.CreateDueNotifications(ctx, t.Installation)
	if err == nil && len(topics) > 0 {
		t.Log.InfoContext(ctx, "wrote messages about cases", "topics", topics)
	}
	return errors.Join(err, t.DB.NotifyPauses(ctx))
}

// Route adds notifications to the delivery lists of the sinks that their routes choose. It wakes
// the relay if there are undelivered ones.
func (t *Notifier) Route(ctx context.Context) error {
	for {
		n, err := t.DB.RouteMessages(ctx, routeBatch, t.chooseReceivers)
		if err != nil {
			return err
		}
		if n < routeBatch {
			break
		}
	}
	pending, err := t.DB.HasPendingMessages(ctx)
	if pending { // or another server has routed some
		t.Wake()
	}
	return err
}

func (t *Notifier) chooseReceivers(m tasker.Notification, notified []string) []string {
	var data tasker.NotificationData
	if err := json.Unmarshal(m.Data, &data); err != nil {
		t.Log.Error("cannot decode a message; sending it to the sinks without a route", "message", m.UUID, "err", err)
		return t.Routes.Default
	}
	return t.Routes.Choose(m.Topic, m.Escalation, data, notified)
}

// A TestMessage describes a test notification with which an operator tests the routes.
type TestMessage struct {
	Namespace string
	Template  string
	Severity  tasker.Severity // default low
	Reason    tasker.Reason
	Cause     string // used as the error text
	Actor     string
}

// TestResult is the result of [Notifier.SendTest].
type TestResult struct {
	SubjectID tasker.ID // subject of the test notification
	Routes    []int     // matching routes, numbered from 1; the first one is used
	Sinks     []string  // sinks that receive the notification
}

// SendTest sends a test notification through the first matching route. It returns Invalid if the
// trial is not valid.
func (t *Notifier) SendTest(ctx context.Context, p TestMessage) (TestResult, error) {
	if p.Severity == "" {
		p.Severity = tasker.Low
	}
	if err := p.check(); err != nil {
		return TestResult{}, err
	}
	data := notice.NewTestData(p.Namespace, p.Actor, time.Now())
	data.Template, data.Severity, data.Reason, data.Text = p.Template, p.Severity, p.Reason, p.Cause
	id, err := t.DB.CreateTestNotification(ctx, data, p.Actor)
	if err != nil {
		return TestResult{}, err
	}
	out := TestResult{
		SubjectID: id, Routes: t.Routes.Match(tasker.TestTopic, data), Sinks: t.Routes.Choose(tasker.TestTopic, 0, data, nil),
	}
	return out, t.Route(ctx)
}

func (p TestMessage) check() error {
	switch {
	case p.Namespace == "":
		return tasker.Errorf(tasker.Invalid, "namespace is missing: it selects the routes")
	case !notice.IsKnownSeverity(p.Severity):
		return tasker.Errorf(tasker.Invalid, "severity must be critical, high, medium or low, not %q", p.Severity)
	}
	return nil
}
