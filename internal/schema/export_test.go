package schema

import (
	"context"
	"io/fs"

	"github.com/jackc/pgx/v5"
)

// A Program is a program with SQL of its own, for tests of how it is applied.
type Program struct{ source *source }

// LoadProgram reads the SQL of a program.
func LoadProgram(fsys fs.FS) (Program, error) {
	s, err := load(fsys)
	return Program{s}, err
}

// Up is [Up] with the SQL of the program.
func (p Program) Up(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	return newMigrator(p.source).up(ctx, conn)
}

// Status is [Status] with the SQL of the program.
func (p Program) Status(ctx context.Context, conn *pgx.Conn) (Report, error) {
	return p.source.status(ctx, conn)
}
