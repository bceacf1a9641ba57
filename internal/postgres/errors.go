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

// classifyError maps database errors to error codes. The query helpers call it for every error.
func classifyError(err error) error {
	var pg *pgconn.PgError
	var connect *pgconn.ConnectError
	switch {
	case err == nil, tasker.CodeOf(err) != tasker.Internal:
		return err
	case errors.As(err, &connect):
		return &tasker.Error{Code: tasker.Unavailable, Message: "the database cannot be reached; try again", Err: err}
	case errors.As(err, &pg):
	case pgconn.SafeToRetry(err):
		return &tasker.Error{Code: tasker.Unavailable, Message: "the connection to the database was lost; try again", Err: err}
	case isConnectionError(err):
		return &tasker.Error{
			Code: tasker.Unavailable, Err: err,
			Message: "the connection to the database broke off, and whether the request took effect is not known; send it again",
		}
	default:
		return err
	}
	switch pg.Code {
	case readOnly:
		return &tasker.Error{
			Code: tasker.Unavailable, Err: err,
			Message: "the database takes no writes now: it is read-only, or another server takes its place; try again",
		}
	case "42P05", "26000": // the session does not have a prepared statement, or has it already
		return errSharedSessions
	case "25P03", "25P02": // it ended the transaction of a server that stood still
		return &tasker.Error{Code: tasker.Unavailable, Message: "the database gave up on the transaction; try again", Err: err}
	}
	switch pg.Code[:2] {
	case "53", "57", "08", "40": // no resources, shut down or cancelled, connection, lost race
		return &tasker.Error{Code: tasker.Unavailable, Message: "the database is busy or going down; try again", Err: err}
	}
	if pg.Code == "55P03" {
		return &tasker.Error{Code: tasker.Unavailable, Message: "the row is held by another for too long; try again", Err: err}
	}
	return err
}

// IsTimeout reports whether a statement or lock timed out; a retry may succeed.
func IsTimeout(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code == "57014" || pg.Code == "55P03"
	}
	return errors.Is(err, context.DeadlineExceeded)
}

// IsUnavailable reports whether the database is unreachable or unavailable, so no row is to blame.
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
		case "57014", "53200": // one statement took too long, or too much memory
			return false
		case readOnly, "25P03": // it is read-only; it gave up on us
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

// isConnectionError reports whether a connection ended under a statement.
func isConnectionError(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false // the caller ended it
	}
	var network net.Error
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) ||
		errors.As(err, &network) || strings.Contains(err.Error(), "conn closed")
}

// OutcomeUnknown reports whether err, returned by a commit, leaves open if the transaction took
// effect: the connection broke, the time expired or the server went down.
func OutcomeUnknown(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err != nil
	}
	return strings.HasPrefix(pg.Code, "57P") || strings.HasPrefix(pg.Code, "08")
}
