package schema

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
)

// DefaultRolePrefix is the default prefix of role names.
const DefaultRolePrefix = "tasker"

// ErrPrivileges is returned if a database user lacks privileges that a server needs.
var ErrPrivileges = errors.New("the database user lacks privileges")

//go:embed roles.sql
var rolesSQL string

var rolePrefix = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,49}$`)

// RolesSQL returns a psql script with which a database administrator creates the roles of a
// database and transfers the schema to the migrating role. Tasker does not run it itself, because
// roles belong to the whole cluster and a program should not have the privilege to create them.
func RolesSQL(prefix string) (string, error) {
	if !rolePrefix.MatchString(prefix) {
		return "", fmt.Errorf("invalid role prefix %q: must be at most 50 lower-case letters, digits and _, "+
			"and not begin with a digit", prefix)
	}
	return strings.ReplaceAll(rolesSQL, "PREFIX", prefix), nil
}

// roles contains the role names of a database.
type roles struct{ Migrate, Server, Reader string }

// findRoles returns the roles of a database, if it has any. It derives their names from that of
// the schema's owner, PREFIX_migrate, so that no configuration is needed; PREFIX_server and
// PREFIX_reader must exist.
func findRoles(ctx context.Context, conn *pgx.Conn) (r roles, found bool, err error) {
	err = conn.QueryRow(ctx, statement("findRoles")).Scan(&r.Migrate, &r.Server, &r.Reader)
	if errors.Is(err, pgx.ErrNoRows) {
		return roles{}, false, nil
	}
	if err != nil {
		return roles{}, false, fmt.Errorf("find the roles of the database: %w", err)
	}
	return r, true, nil
}

// assume switches to the role that owns the schema, so that all members of the role own the
// created objects. restore switches back.
func (r roles) assume(ctx context.Context, conn *pgx.Conn) (restore func() error, err error) {
	user, err := currentUser(ctx, conn)
	if err != nil {
		return nil, err
	}
	if user == r.Migrate {
		return func() error { return nil }, nil
	}
	if _, err := conn.Exec(ctx, "SET ROLE "+pgx.Identifier{r.Migrate}.Sanitize()); err != nil {
		if conditionName(err) == "42501" {
			return nil, fmt.Errorf("%w: the schema tasker belongs to %s, of which %s is not a member; "+
				"have a database administrator run: GRANT %s TO %s (%w)",
				ErrPrivileges, r.Migrate, user, r.Migrate, user, err)
		}
		return nil, fmt.Errorf("switch to the schema owner: %w", err)
	}
	return func() error {
		if conn.IsClosed() {
			return nil
		}
		if _, err := conn.Exec(context.WithoutCancel(ctx), "SET ROLE "+pgx.Identifier{user}.Sanitize()); err != nil {
			return fmt.Errorf("switch back to role %s: %w", user, err)
		}
		return nil
	}, nil
}

func currentUser(ctx context.Context, conn *pgx.Conn) (user string, err error) {
	if err := conn.QueryRow(ctx, statement("currentUser")).Scan(&user); err != nil {
		return "", fmt.Errorf("read the current user: %w", err)
	}
	return user, nil
}
