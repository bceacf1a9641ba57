package postgres

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"tasker.example/tasker"
)

// classifyError converts database errors to errors with codes. The query helpers call it for every
// error.
func classifyError(err error) error {
	var pg *pgconn.PgError
	var connect *pgconn.ConnectError
	switch {
	case err == nil, tasker.CodeOf(err) != tasker.Internal:
		return err
	case errors.As(err, &connect):
		return newUnavailableError(err, "cannot connect to the database: try again")
	case errors.As(err, &pg):
	case pgconn.SafeToRetry(err):
		return newUnavailableError(err, "lost the connection to the database: try again")
	case isConnectionError(err):
		return newUnavailableError(err,
			"lost the connection to the database, and the request may have taken effect: send it again")
	default:
		return err
	}
	switch pg.Code {
	case readOnly:
		return newUnavailableError(err, "the database is read-only, or is failing over: try again")
	case "42P05", "26000": // a prepared statement does not exist or already exists
		return errSharedSessions
	case "25P03", "25P02": // the transaction was idle for too long
		return newUnavailableError(err, "the database aborted the transaction: try again")
	case "55P03":
		return newUnavailableError(err, "timed out waiting for a locked row: try again")
	}
	switch pg.Code[:2] {
	case "53", "57", "08", "40": // resources, shutdown or cancellation, connection, or serialization
		return newUnavailableError(err, "the database is overloaded or shutting down: try again")
	}
	return err
}

func newUnavailableError(err error, message string) error {
	return &tasker.Error{Code: tasker.Unavailable, Message: message, Err: err}
}

// IsTimeout reports whether err is a timeout of a statement or a lock, so that a retry may succeed.
func IsTimeout(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code == "57014" || pg.Code == "55P03"
	}
	return errors.Is(err, context.DeadlineExceeded)
}

// IsUnavailable reports whether the database, rather than a particular row, caused err.
func IsUnavailable(err error) bool {
	var connect *pgconn.ConnectError
	var pg *pgconn.PgError
	switch {
	case err == nil:
		return false
	case errors.As(err, &connect):
		return true
	case errors.As(err, &pg):
		switch pg.Code {
		case "57014", "53200": // a single statement timed out or ran out of memory
			return false
		case readOnly, "25P03":
			return true
		}
		switch pg.Code[:2] {
		case "08", "53", "57":
			return true
		}
		return false
	case pgconn.SafeToRetry(err):
		return !errors.Is(err, context.DeadlineExceeded)
	default:
		return isConnectionError(err)
	}
}

// isConnectionError reports whether err means that the connection was lost during a statement.
func isConnectionError(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false // caused by the caller
	}
	var network net.Error
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) ||
		errors.As(err, &network) || strings.Contains(err.Error(), "conn closed")
}

// IsOutcomeUnknown reports whether a commit that returned err may have succeeded: the connection
// was lost, the deadline passed, or the server shut down.
func IsOutcomeUnknown(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err != nil
	}
	return strings.HasPrefix(pg.Code, "57P") || strings.HasPrefix(pg.Code, "08")
}
