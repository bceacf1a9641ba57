package schema

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// ErrUnsuitable is returned if Tasker cannot use a database and no migration can change that.
var ErrUnsuitable = errors.New("the database is not suitable")

// minVersion is the minimum server_version_num of PostgreSQL.
const minVersion = 150000

// checkDatabase returns ErrUnsuitable, with the remedy, if Tasker cannot use the database.
func checkDatabase(ctx context.Context, conn *pgx.Conn) error {
	var name, encoding, version string
	var number int
	err := conn.QueryRow(ctx, statement("describeDatabase")).Scan(&name, &encoding, &version, &number)
	switch {
	case err != nil:
		return fmt.Errorf("read the encoding of the database: %w", err)
	case number < minVersion:
		return fmt.Errorf("%w: PostgreSQL %s is too old: use version %d or later", ErrUnsuitable, version, minVersion/10000)
	case encoding != "UTF8":
		return fmt.Errorf("%w: its encoding is %s: create a database with CREATE DATABASE %s ENCODING 'UTF8' "+
			"TEMPLATE template0, "+
			"under a new name or after dropping this one",
			ErrUnsuitable, encoding, name)
	}
	return nil
}
