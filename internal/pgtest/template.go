package pgtest

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker/internal/schema"
)

// followSQL keeps the queue tables in step with what tests write by SQL.
//
//go:embed follow.sql
var followSQL string

// templateLock is the key of the lock for creating a template on an external server, which several
// test binaries may share.
const templateLock = 7_236_837_502

// makeTemplate creates the migrated template database, if it is missing. The name contains the
// checksum of the schema. The last step marks it as a template, so an incomplete one is recreated.
func (s *testServer) makeTemplate(ctx context.Context) (err error) {
	s.template = "tasker_template_" + templateChecksum()
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return fmt.Errorf("connect to the server for tests: %w", err)
	}
	// Closing the connection releases the lock.
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	if err := lockTemplates(ctx, conn); err != nil {
		return err
	}
	var made bool
	err = conn.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1 AND datistemplate)`, s.template).Scan(&made)
	if err != nil || made {
		return err
	}
	name := quoteIdentifier(s.template)
	for _, sql := range []string{"DROP DATABASE IF EXISTS " + name + " WITH (FORCE)", "CREATE DATABASE " + name} {
		if _, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("make the template for tests: %w", err)
		}
	}
	if err := s.migrate(ctx, withDatabase(s.url, s.template)); err != nil {
		return fmt.Errorf("migrate the template for tests: %w", err)
	}
	// A template with open connections cannot be copied.
	if _, err := conn.Exec(ctx, "ALTER DATABASE "+name+" IS_TEMPLATE true ALLOW_CONNECTIONS false",
		pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("make the template for tests: %w", err)
	}
	return nil
}

// migrate creates the roles, as a database administrator does, and the schema as its owner.
func (s *testServer) migrate(ctx context.Context, url string) error {
	roles, err := schema.RolesSQL(RolePrefix)
	if err != nil {
		return err
	}
	if err := execute(ctx, url, roles); err != nil {
		return fmt.Errorf("create the roles: %w", err)
	}
	conn, err := pgx.Connect(ctx, withRole(url, MigrateRole))
	if err != nil {
		return err
	}
	_, err = schema.Up(ctx, conn)
	if err := errors.Join(err, conn.Close(context.WithoutCancel(ctx))); err != nil {
		return err
	}
	return execute(ctx, url, followSQL)
}

// execute runs statements in a session of their own.
func execute(ctx context.Context, url, sql string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	return errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
}

// templateChecksum identifies the contents of the template.
func templateChecksum() string {
	sum := sha256.Sum256([]byte(schema.Checksum() + followSQL))
	return hex.EncodeToString(sum[:8])
}

// lockTemplates waits for the lock of the template.
func lockTemplates(ctx context.Context, conn *pgx.Conn) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		var locked bool
		if err := conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1)`, int64(templateLock)).Scan(&locked); err != nil {
			return err
		}
		if locked {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("another test binary is making the template: %w", ctx.Err())
		case <-tick.C:
		}
	}
}
