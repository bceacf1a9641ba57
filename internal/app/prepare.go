package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"tasker"
	"tasker/internal/engine"
	"tasker/internal/postgres"
	"tasker/internal/schema"
	"tasker/internal/templatefile"
)

// How long a database that is not there yet is waited for, and how often it is
// asked.
const (
	openPatience = 30 * time.Second
	openAgain    = time.Second
)

// open connects to the database and checks that its schema is ours.
func open(ctx context.Context, o Options) (*postgres.DB, error) {
	db, err := connect(ctx, o)
	if err != nil {
		return nil, err
	}
	err = func() error {
		conn, err := db.Pool().Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		return schema.Check(ctx, conn.Conn())
	}()
	if err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

// connect waits for a database that is just starting.
func connect(ctx context.Context, o Options) (*postgres.DB, error) {
	c := o.Config.Database
	deadline := time.Now().Add(openPatience)
	for {
		db, err := postgres.Open(ctx, c.URL, postgres.Options{
			MaxConns: c.MaxConnections, StatementTimeout: c.StatementTimeout(), QueueTTL: o.Config.MessageQueue.RabbitMQ.WorkerQueueTTL(),
			Announce: o.Config.MessageQueue.Transport == "rabbitmq",
		})
		if err == nil {
			return db, nil
		}
		err = Unreachable(err)
		if !mayComeUp(err) || time.Now().After(deadline) || ctx.Err() != nil {
			return nil, err
		}
		o.Log.WarnContext(ctx, "the database does not answer yet; trying again", "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(openAgain):
		}
	}
}

// mayComeUp tells a server that does not answer from one that refuses.
func mayComeUp(err error) bool {
	var malformed *pgconn.ParseConfigError
	var answer *pgconn.PgError
	switch {
	case errors.As(err, &malformed):
		return false
	case errors.As(err, &answer):
		return answer.Code == "57P03" // it is starting up
	default:
		return true
	}
}

// prepare brings into the database what the configuration and the files say.
func prepare(ctx context.Context, o Options, db *postgres.DB, e *engine.Engine) error {
	t := o.Config.StalenessDetection.Thresholds
	changed, err := db.SetStalenessThresholds(ctx, postgres.Thresholds{
		WaitingForDependencies: t.WaitingForDependenciesMinutes, WaitingForRetry: t.WaitingForRetryMinutes,
		StepsInProcess: t.StepsInProcessMinutes, ErrorRecovery: t.ErrorRecoveryMinutes,
	})
	if err != nil {
		return err
	}
	if changed {
		o.Log.WarnContext(ctx, "the staleness thresholds of the database have changed to those of this server; "+
			"tasks that stand in their state already follow within minutes; all servers of a database should have the same ones")
	}
	hidden := o.Config.Redaction.Rules()
	err = db.SetRedaction(ctx, postgres.Redaction{
		KeyPattern: hidden.Pattern(), Document: hidden.Document(), TextPatterns: hidden.Texts(), Paths: hidden.Paths(),
	})
	if err != nil {
		return err
	}
	if o.Config.Server.Templates == "" {
		return nil
	}
	files, err := templatefile.LoadDir(o.Config.Server.Templates)
	if err != nil {
		return err
	}
	for _, f := range files {
		stored, created, err := e.RegisterTemplate(ctx, f.Template, f.Source)
		switch {
		case tasker.CodeOf(err) == tasker.Conflict:
			return fmt.Errorf("%s: %w", f.Path, err)
		case err != nil:
			return fmt.Errorf("register the template in %s: %w", f.Path, err)
		case created:
			o.Log.InfoContext(ctx, "registered a template", "file", f.Path, "template", stored.Namespace+"/"+stored.Name, "version", stored.Version)
		}
	}
	return nil
}
