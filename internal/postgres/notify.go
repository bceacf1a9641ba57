package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Notify sends messages to all listeners of a channel.
func (db *DB) Notify(ctx context.Context, channel string, messages []string) error {
	return notify(ctx, db.pool, channel, messages)
}

// Notify sends messages like [DB.Notify], but not before the transaction is committed.
func (tx *Tx) Notify(ctx context.Context, channel string, messages []string) error {
	return notify(ctx, tx, channel, messages)
}

// DueChannel is the channel on which processes announce due work. A message consists of the sender,
// a space and the milliseconds until the work is due. If these are 0, the sender also reacts.
const DueChannel = "tasker_due"

// NotifyDue informs other processes that work becomes due after the given duration.
func (db *DB) NotifyDue(ctx context.Context, sender string, after time.Duration) error {
	return notifyDue(ctx, db.pool, sender, after)
}

func notifyDue(ctx context.Context, q querier, sender string, after time.Duration) error {
	return notify(ctx, q, DueChannel, []string{fmt.Sprintf("%s %d", sender, after.Milliseconds())})
}

func notify(ctx context.Context, q querier, channel string, messages []string) error {
	return exec(ctx, q, "notify", statement("notify"), channel, messages)
}

const (
	quietFor = 30 * time.Second // time without notifications after which the connection is tested
	testTime = 5 * time.Second
)

// Listen subscribes to channels and then calls begun once. It calls f for each notification until
// ctx ends or the connection fails.
func (db *DB) Listen(ctx context.Context, channels []string, begun func(), f func(channel, message string)) error {
	conn, err := db.pool.connect(ctx) // a listening connection must not return to a pool
	if err != nil {
		return err
	}
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

// waitForNotification waits for a notification for a limited time. It returns nil if none arrived
// and the connection works.
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
