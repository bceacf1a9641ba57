package schema

import (
	"context"
	"io/fs"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// A Program is a program with SQL of its own, for tests of how it is applied.
type Program struct{ source *source }

// LoadProgram reads the SQL of a program.
func LoadProgram(fsys fs.FS) (Program, error) {
	s, err := load(fsys)
	return Program{s}, err
}

// Embedded is the program that this test was built with.
func Embedded() Program { return Program{program} }

// Up is [Up] with the SQL of the program.
func (p Program) Up(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	return newMigrator(p.source).up(ctx, conn)
}

// UpImpatiently is Up that waits so long for a lock, pauses as long, and gives up after a while.
func (p Program) UpImpatiently(ctx context.Context, conn *pgx.Conn, lock, wait time.Duration, progress func(string)) ([]string, error) {
	m := newMigrator(p.source)
	m.lockTimeout, m.backoff, m.maxBackoff, m.wait, m.progress = lock, lock, lock, wait, progress
	m.reportAfter, m.reportEvery = lock, lock
	return m.up(ctx, conn)
}

// UpPatiently is [UpWith] with the SQL of the program.
func (p Program) UpPatiently(ctx context.Context, conn *pgx.Conn, progress func(string)) ([]string, error) {
	m := newMigrator(p.source)
	m.progress = progress
	return m.up(ctx, conn)
}

// Migrations returns the migrations of the program by their paths.
func (p Program) Migrations() map[string]string {
	all := map[string]string{}
	for _, f := range p.source.migrations {
		all[f.path] = f.sql
	}
	return all
}

// Files returns all SQL of the program by the names of its files.
func (p Program) Files() map[string]string {
	all := p.Migrations()
	for _, f := range p.source.objects {
		all[f.path] = f.sql
	}
	return all
}

// Functions returns the names of the functions that have a file of their own.
func (p Program) Functions() []string {
	var names []string
	for _, f := range p.source.objects {
		if strings.HasPrefix(f.path, "functions/") {
			names = append(names, f.name)
		}
	}
	return names
}

// Status is [Status] with the SQL of the program.
func (p Program) Status(ctx context.Context, conn *pgx.Conn) (Report, error) {
	return p.source.status(ctx, conn)
}

// Through is the program without the migrations after one, and without functions and
// views: those of another version are not known.
func (p Program) Through(version int) Program {
	return Program{&source{migrations: p.source.migrations[:version], checksum: "through " + p.source.migrations[version-1].path}}
}
