package schema

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// fileError is an error that PostgreSQL reported for a file.
type fileError struct {
	file      file
	statement int // number of the failed statement, from 1
	err       *pgconn.PgError
}

// Error starts with the file and the position, as compilers do.
func (e *fileError) Error() string {
	var b strings.Builder
	b.WriteString(e.file.path)
	if line, column := findPosition(e.file.sql, int(e.err.Position)); line > 0 {
		fmt.Fprintf(&b, ":%d:%d", line, column)
	} else {
		fmt.Fprintf(&b, ": statement %d", e.statement)
	}
	fmt.Fprintf(&b, ": %s (SQLSTATE %s)", e.err.Message, e.err.Code)
	for _, more := range []struct{ label, text string }{
		{"detail", e.err.Detail}, {"hint", e.err.Hint}, {"where", e.err.Where},
	} {
		if more.text != "" {
			fmt.Fprintf(&b, "\n  %s: %s", more.label, more.text)
		}
	}
	return b.String()
}

func (e *fileError) Unwrap() error { return e.err }

// findPosition converts a position, in characters from 1, to line and column. It returns 0, 0 if
// there is none.
func findPosition(sql string, position int) (line, column int) {
	if position <= 0 {
		return 0, 0
	}
	before := []rune(sql)
	text := string(before[:min(position-1, len(before))])
	line = 1 + strings.Count(text, "\n")
	column = 1 + len([]rune(text[strings.LastIndex(text, "\n")+1:]))
	return line, column
}

// runFile runs all statements of a file in the transaction that conn is in.
func runFile(ctx context.Context, conn *pgx.Conn, f file) error {
	if err := exec(ctx, conn, f); err != nil {
		return err
	}
	if status := conn.PgConn().TxStatus(); status != 'T' {
		return fmt.Errorf("%s: ended its transaction: remove COMMIT or ROLLBACK from it, "+
			"and undo manually what it committed", f.path)
	}
	return nil
}

// runAlone runs a migration outside of a transaction and records it. The migration must be
// idempotent (IF NOT EXISTS), because it runs again if it fails half-way or is not recorded.
// runAlone first drops invalid indexes of a failed attempt, because IF NOT EXISTS would accept
// them.
func runAlone(ctx context.Context, conn *pgx.Conn, f file) (err error) {
	restore, err := setForSession(ctx, conn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, restore()) }()
	if err := dropInvalidIndexes(ctx, conn); err != nil {
		return err
	}
	if err := exec(ctx, conn, f); err != nil {
		return err
	}
	return record(ctx, conn, f.version, f.name, f.checksum)
}

// exec sends a whole file at once, because splitting it into statements would require PostgreSQL's
// parser.
func exec(ctx context.Context, conn *pgx.Conn, f file) error {
	results, err := conn.PgConn().Exec(ctx, f.sql).ReadAll()
	if err == nil {
		return nil
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return &fileError{file: f, statement: len(results), err: pg}
	}
	return fmt.Errorf("%s: %w", f.path, err)
}

// execer is a connection or a transaction.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// record records that a migration was applied, or that functions and views were replaced.
func record(ctx context.Context, db execer, version int, name, checksum string) error {
	_, err := db.Exec(ctx, statement("recordMigration"), version, name, checksum)
	if err != nil {
		return fmt.Errorf("record migration %04d_%s: %w", version, name, err)
	}
	return nil
}

// setForSession applies the settings for migrations to the session. restore reverts them.
func setForSession(ctx context.Context, conn *pgx.Conn) (restore func() error, err error) {
	var path, timeout string
	err = conn.QueryRow(ctx, statement("sessionSettings")).Scan(&path, &timeout)
	if err == nil {
		_, err = conn.Exec(ctx, statement("setSession"), "tasker", "0")
	}
	if err != nil {
		return nil, fmt.Errorf("prepare the session for migrations: %w", err)
	}
	return func() error {
		if conn.IsClosed() {
			return nil
		}
		_, err := conn.Exec(context.WithoutCancel(ctx), statement("setSession"), path, timeout)
		return err
	}, nil
}

// dropInvalidIndexes drops the invalid indexes that failed CREATE INDEX CONCURRENTLY statements
// have left.
func dropInvalidIndexes(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.Query(ctx, statement("invalidIndexes"))
	if err != nil {
		return fmt.Errorf("find unfinished indexes: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("find unfinished indexes: %w", err)
	}
	for _, name := range names {
		if _, err := conn.Exec(ctx, "DROP INDEX CONCURRENTLY "+name, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("drop the unfinished index %s: %w", name, err)
		}
	}
	return nil
}
