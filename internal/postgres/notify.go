package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Notify sends notifications to whoever listens to the channel.
func (db *DB) Notify(ctx context.Context, channel string, messages []string) error {
	return notify(ctx, db.pool, channel, messages)
}

// Notify is [DB.Notify] once the transaction has committed.
func (tx *Tx) Notify(ctx context.Context, channel string, messages []string) error {
	return notify(ctx, tx, channel, messages)
}

// DueChannel notifies processes of due work: sender, blank, milliseconds; 0 also wakes senders.
const DueChannel = "tasker_due"

// NotifyDue notifies the other processes that work is due after a time.
func (db *DB) NotifyDue(ctx context.Context, sender string, after time.Duration) error {
	return notifyDue(ctx, db.pool, sender, after)
}

func notifyDue(ctx context.Context, q querier, sender string, after time.Duration) error {
	return notify(ctx, q, DueChannel, []string{fmt.Sprintf("%s %d", sender, after.Milliseconds())})
}

func notify(ctx context.Context, q querier, channel string, messages []string) error {
	_, err := q.Exec(ctx, `SELECT pg_notify($1, m) FROM unnest($2::text[]) m`, channel, messages)
	return wrap(err, "notify")
}

const (
	quietFor = 30 * time.Second // without a notification, until the connection is tested
	testTime = 5 * time.Second
)

// Listen calls begun, then f for each notification, until ctx ends or the connection breaks.
func (db *DB) Listen(ctx context.Context, channels []string, begun func(), f func(channel, message string)) error {
	pooled, err := db.Pool().Acquire(ctx)
	if err != nil {
		return err
	}
	conn := pooled.Hijack() // a connection that listens must not go back to the pool
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for _, channel := range channels {
		if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
			return err
		}
	}
	begun()
	for {
		n, err := waitForNotification(ctx, conn)
		if err != nil {
			return errors.Join(err, ctx.Err())
		}
		if n != nil {
			f(n.Channel, n.Payload)
		}
	}
}

// waitForNotification returns nil if none came and the connection still works.
func waitForNotification(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	quiet, cancel := context.WithTimeout(ctx, quietFor)
	defer cancel()
	n, err := conn.WaitForNotification(quiet)
	if err == nil || quiet.Err() == nil || ctx.Err() != nil {
		return n, err
	}
	limited, cancel := context.WithTimeout(ctx, testTime)
	defer cancel()
	return nil, conn.Ping(limited)
}
