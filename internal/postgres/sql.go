package postgres

import (
	"embed"

	"tasker.example/tasker/internal/sqlfile"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

var queries = sqlfile.Load(sqlFiles)

// statement returns the statement with the given name in sql/*.sql. It panics if there is none.
func statement(name string) string { return queries.Get(name) }
