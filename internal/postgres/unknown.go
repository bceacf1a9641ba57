package postgres

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// OutcomeUnknown reports whether err, the error of a commit, leaves open if the
// transaction took effect: the connection broke off, the time was over, or the
// server went down, before the answer was there. Any other answer of PostgreSQL
// means that it did not.
func OutcomeUnknown(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err != nil
	}
	return strings.HasPrefix(pg.Code, "57P") || strings.HasPrefix(pg.Code, "08")
}
