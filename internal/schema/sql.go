package schema

import (
	"embed"

	"tasker.example/tasker/internal/sqlfile"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// statement returns the statement with the given name in sql/*.sql. It panics if there is none.
var statement = sqlfile.Load(sqlFiles).Get
