package app

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// WrapUnreachable formats the error of a connection to a database as one line with a remedy. It
// shows no part of a malformed URL. It returns other errors unchanged.
func WrapUnreachable(err error) error {
	var connect *pgconn.ConnectError
	if malformed, ok := errors.AsType[*pgconn.ParseConfigError](err); ok {
		// The original text quotes the malformed part, which may be a password.
		text := "invalid database URL: must begin with postgres:// or be a list of keywords such as host=… dbname=…"
		if strings.Contains(malformed.Error(), "failed to configure TLS") {
			text = "invalid TLS settings in the database URL: check sslmode, sslrootcert, sslcert and sslkey"
		}
		return &unreachableError{text: text, err: err}
	}
	if !errors.As(err, &connect) {
		return err
	}
	return &unreachableError{text: "cannot connect to the database: " + joinLines(connect.Error()) + "; " + suggestRemedy(err), err: err}
}

// unreachableError is a readable [pgconn.ConnectError] or [pgconn.ParseConfigError].
type unreachableError struct {
	text string
	err  error
}

func (e *unreachableError) Error() string { return e.text }

func (e *unreachableError) Unwrap() error { return e.err }

// joinLines joins the distinct lines of a message. Attempts with and without TLS tend to fail
// alike.
func joinLines(message string) string {
	var lines []string
	for line := range strings.Lines(message) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, " ")
}

// suggestRemedy suggests a fix for a failed connection, based on the server's response if there was
// one.
func suggestRemedy(err error) string {
	var answer *pgconn.PgError
	if !errors.As(err, &answer) {
		return "is PostgreSQL running there, and is the database URL correct?"
	}
	if isUnsupportedParameter(answer) {
		return fmt.Sprintf("a pooler such as PgBouncer responded: remove %s from the database URL, or add it to its ignore_startup_parameters",
			answer.Message[len(unsupported):])
	}
	switch answer.Code {
	case "28P01", "28000":
		return "check the user and password in the database URL"
	case "3D000":
		return "create the database (createdb), or check its name in the database URL"
	default:
		return "this is the response of PostgreSQL"
	}
}

// unsupported is the beginning of PgBouncer's response to an unknown startup parameter.
const unsupported = "unsupported startup parameter: "

// isUnsupportedParameter reports whether a pooler rejects a parameter. A retry does not help.
func isUnsupportedParameter(answer *pgconn.PgError) bool {
	return answer.Code == "08P01" && strings.HasPrefix(answer.Message, unsupported)
}
