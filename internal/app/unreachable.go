package app

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Unreachable makes one line of the reasons why a database could not be
// connected to, and says what to do about them. It shows nothing of a URL that is
// none. Other errors stay as they are.
func Unreachable(err error) error {
	var connect *pgconn.ConnectError
	if malformed, ok := errors.AsType[*pgconn.ParseConfigError](err); ok {
		// Its own text quotes what it could not read, which may be a password.
		text := "the database URL cannot be read: it must begin with postgres:// or be a list of keywords such as host=… dbname=…"
		if strings.Contains(malformed.Error(), "failed to configure TLS") {
			text = "the database URL cannot be used: look at its sslmode, sslrootcert, sslcert and sslkey"
		}
		return &unreachableError{text: text, err: err}
	}
	if !errors.As(err, &connect) {
		return err
	}
	return &unreachableError{text: "cannot reach the database: " + oneLine(connect.Error()) + "; " + remedy(err), err: err}
}

// unreachableError is a [pgconn.ConnectError] or [pgconn.ParseConfigError] in a person's words.
type unreachableError struct {
	text string
	err  error
}

func (e *unreachableError) Error() string { return e.text }

func (e *unreachableError) Unwrap() error { return e.err }

// oneLine joins the lines of a message, each once: an attempt with TLS and one
// without tend to fail alike.
func oneLine(message string) string {
	var lines []string
	for line := range strings.Lines(message) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, " ")
}

// remedy is what to do, by what the server answered, if it did.
func remedy(err error) string {
	var answer *pgconn.PgError
	if !errors.As(err, &answer) {
		return "is PostgreSQL running there, and is the database URL right?"
	}
	if unsupportedParameter(answer) {
		return fmt.Sprintf("PgBouncer or another pooler answers: remove %s from the database URL, or add it to ignore_startup_parameters there",
			answer.Message[len(unsupported):])
	}
	switch answer.Code {
	case "28P01", "28000":
		return "look at user and password in the database URL"
	case "3D000":
		return "create the database first (createdb), or look at its name in the database URL"
	default:
		return "that is PostgreSQL's own answer"
	}
}

// unsupported begins the answer of PgBouncer to a startup parameter that it does not know.
const unsupported = "unsupported startup parameter: "

// unsupportedParameter reports whether a pooler refuses a parameter: trying again does not help.
func unsupportedParameter(answer *pgconn.PgError) bool {
	return answer.Code == "08P01" && strings.HasPrefix(answer.Message, unsupported)
}
