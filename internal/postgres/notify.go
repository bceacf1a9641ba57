package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Notify sends messages to the listeners of a channel.
func (db *DB) Notify(ctx context.Context, channel string, messages []string) error {
	return notify(ctx, db.pool, channel, messages)
}

// Notify is [DB.Notify] when the transaction commits.
func (tx *Tx) Notify(ctx context.Context, channel string, messages []string) error {
	return notify(ctx, tx, channel, messages)
}

// DueChannel announces due work. A message is the sender, a blank and the milliseconds until it is
// due; 0 also wakes the sender.
const DueChannel = "tasker_due"

// NotifyDue announces to other processes that work is due after a duration.
func (db *DB) NotifyDue(ctx context.Context, sender string, after time.Duration) error {
	return notifyDue(ctx, db.pool, sender, after)
}

func notifyDue(ctx context.Context, q querier, sender string, after time.Duration) error {
	return notify(ctx, q, DueChannel, []string{fmt.Sprintf("%s %d", sender, after.Milliseconds())})
}

func notify(ctx context.Context, q querier, channel string, messages []string) error {
	return exec(ctx, q, "notify", stmt("notify"), channel, messages)
}

const (
	quietFor = 30 * time.Second // time without a notification after which the connection is tested
	testTime = 5 * time.Second
)

// Listen subscribes to channels and calls begun. It then calls f for each notification until ctx is
// done or the connection fails.
func (db *DB) Listen(ctx context.Context, channels []string, begun func(), f func(channel, message string)) error {
	pooled, err := db.Pool().Acquire(ctx)
	if err != nil {
		return err
	}
	conn := pooled.Hijack() // a listening connection must not return to the pool
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

// waitForNotification returns nil if no notification arrived and the connection works.
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
