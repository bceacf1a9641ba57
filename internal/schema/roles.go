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

// DefaultRolePrefix is what the names of the roles begin with unless a database
// administrator chooses otherwise.
const DefaultRolePrefix = "tasker"

// ErrPrivileges says that a user may not do what a server does.
var ErrPrivileges = errors.New("the database user lacks privileges")

//go:embed roles.sql
var rolesSQL string

var rolePrefix = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,49}$`)

// RolesSQL returns the SQL, for psql, with which a database administrator creates
// the roles of a database and gives the schema to the one that migrates. Roles are
// made by hand because they belong to the whole cluster: a program that may create
// roles may do more than Tasker should be able to.
func RolesSQL(prefix string) (string, error) {
	if !rolePrefix.MatchString(prefix) {
		return "", fmt.Errorf("invalid prefix %q of the roles: must be at most 50 lower-case letters, digits and _, and not begin with a digit", prefix)
	}
	return strings.ReplaceAll(rolesSQL, "PREFIX", prefix), nil
}

// roles are the names of the roles of one database.
type roles struct{ Migrate, Server, Reader string }

// findRoles finds the roles of a database. They are told by the owner of the
// schema, PREFIX_migrate, beside which PREFIX_server and PREFIX_reader exist: nothing
// has to be configured twice, and an installation without them stays as it is.
func findRoles(ctx context.Context, conn *pgx.Conn) (r roles, found bool, err error) {
	err = conn.QueryRow(ctx, `
		SELECT o.rolname, s.rolname, r.rolname
		FROM pg_namespace n
		JOIN pg_roles o ON o.oid = n.nspowner
		JOIN pg_roles s ON s.rolname = regexp_replace(o.rolname, '_migrate$', '_server')
		JOIN pg_roles r ON r.rolname = regexp_replace(o.rolname, '_migrate$', '_reader')
		WHERE n.nspname = 'tasker' AND o.rolname LIKE '%\_migrate'`).Scan(&r.Migrate, &r.Server, &r.Reader)
	if errors.Is(err, pgx.ErrNoRows) {
		return roles{}, false, nil
	}
	if err != nil {
		return roles{}, false, fmt.Errorf("find the roles of the database: %w", err)
	}
	return r, true, nil
}

// assume makes the owner of the schema the one who migrates, so that what a member
// creates belongs to all members.
func (r roles) assume(ctx context.Context, conn *pgx.Conn) (restore func() error, err error) {
	var user string
	if err := conn.QueryRow(ctx, `SELECT current_user`).Scan(&user); err != nil {
		return nil, fmt.Errorf("ask for the user: %w", err)
	}
	if user == r.Migrate {
		return func() error { return nil }, nil
	}
	if _, err := conn.Exec(ctx, "SET ROLE "+pgx.Identifier{r.Migrate}.Sanitize()); err != nil {
		if conditionOf(err) == "42501" {
			return nil, fmt.Errorf("%w: the schema tasker belongs to %s, of which %s is not a member; have a database administrator run: GRANT %s TO %s (%w)",
				ErrPrivileges, r.Migrate, user, r.Migrate, user, err)
		}
		return nil, fmt.Errorf("become the owner of the schema: %w", err)
	}
	return func() error {
		if conn.IsClosed() {
			return nil
		}
		if _, err := conn.Exec(context.WithoutCancel(ctx), "SET ROLE "+pgx.Identifier{user}.Sanitize()); err != nil {
			return fmt.Errorf("become %s again: %w", user, err)
		}
		return nil
	}, nil
}
