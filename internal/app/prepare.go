package app

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/schema"
	"tasker.example/tasker/internal/templatefile"
)

// openTimeout limits how long the start waits for an unavailable database; the others are the
// retry delays.
const (
	openTimeout = 30 * time.Second
	openFirst   = 100 * time.Millisecond // doubled each time
	openAgain   = time.Second
)

// starter performs the steps of the server's start. It retries them while the database may still
// become available.
type starter struct {
	Options
	deadline       time.Time
	templateFaults []templatefile.FileFault // of files that were not registered
}

func newStarter(o Options) *starter {
	return &starter{Options: o, deadline: time.Now().Add(openTimeout)}
}

// try performs a step of the start with retries. The step must be safe to repeat.
func (s *starter) try(ctx context.Context, step func() error) error {
	for rest := openFirst; ; rest = min(2*rest, openAgain) {
		err := WrapUnreachable(step())
		if err == nil || !mayComeUp(err) || time.Now().After(s.deadline) || ctx.Err() != nil {
			return err
		}
		s.Log.WarnContext(ctx, "database unavailable; retrying", "err", err)
		loop.Sleep(ctx, rest)
	}
}

// open connects to the database and checks its schema.
func (s *starter) open(ctx context.Context) (db *postgres.DB, err error) {
	c := s.Config.Database
	taskEvents, err := s.Config.Emission.TaskSubscriptions()
	if err != nil {
		return nil, err
	}
	err = s.try(ctx, func() (err error) {
		db, err = postgres.Open(ctx, c.URL, postgres.Options{
			MaxConns: c.MaxConnections, StatementTimeout: c.StatementTimeout(), QueueTTL: s.Config.MessageQueue.RabbitMQ.WorkerQueueTTL(),
			ExpiryRule:  tasker.ExpiryRule(s.Config.MessageQueue.QueueTTL),
			PriorityAge: s.Config.MessageQueue.PriorityAge(),
			TaskEvents:  taskEvents,
			ClockSchema: s.ClockSchema,
			Announce:    s.Config.MessageQueue.Transport == "rabbitmq", ReportQueues: s.Config.Breaker.Enabled,
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	err = s.try(ctx, func() error {
		conn, err := db.Pool().Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		return schema.Check(ctx, conn.Conn())
	})
	if err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

// mayComeUp reports whether an error may mean that the database is only temporarily unavailable.
func mayComeUp(err error) bool {
	var malformed *pgconn.ParseConfigError
	var answer *pgconn.PgError
	switch {
	case errors.As(err, &malformed):
		return false
	case errors.As(err, &answer):
		class := answer.Code[:2] // no connection, no resources, lost race, going down
		return class == "08" && !isUnsupportedParameter(answer) || class == "53" || class == "40" || class == "57" || answer.Code == "25006" || postgres.IsTimeout(err)
	default:
		return postgres.IsUnavailable(err)
	}
}

// prepare stores the settings and registers the templates.
func (s *starter) prepare(ctx context.Context, db *postgres.DB, e *engine.Engine) error {
	if err := s.prepareSettings(ctx, db); err != nil {
		return err
	}
	return s.registerTemplates(ctx, e)
}

// prepareSettings stores the configuration that database functions use.
func (s *starter) prepareSettings(ctx context.Context, db *postgres.DB) error {
	o := s.Options
	t := o.Config.StalenessDetection.Thresholds
	changed := false
	err := s.try(ctx, func() (err error) {
		changed, err = db.SetStalenessThresholds(ctx, postgres.Thresholds{
			WaitingForDependencies: t.WaitingForDependenciesMinutes, WaitingForRetry: t.WaitingForRetryMinutes,
			StepsInProcess: t.StepsInProcessMinutes, ErrorRecovery: t.ErrorRecoveryMinutes,
		})
		return err
	})
	if err != nil {
		return err
	}
	if changed {
		o.Log.WarnContext(ctx, "staleness thresholds changed to those of this server; "+
			"existing tasks follow within minutes; all servers of a database should use the same thresholds")
	}
	err = s.try(ctx, func() (err error) {
		changed, err = db.SetBasePriorities(ctx, o.Config.Investigations.BasePriority.Reasons())
		return err
	})
	if err != nil {
		return err
	}
	if changed {
		o.Log.WarnContext(ctx, "base priorities changed to those of this server; "+
			"they apply to new investigations; all servers of a database should use the same priorities")
	}
	hidden := o.Config.Redaction.Rules()
	return s.try(ctx, func() error {
		return db.SetRedaction(ctx, postgres.Redaction{
			KeyPattern: hidden.Pattern(), Document: hidden.Document(), TextPatterns: hidden.Texts(), Paths: hidden.Paths(),
		})
	})
}
