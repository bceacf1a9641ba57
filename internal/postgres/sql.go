package postgres

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

var queries = parseStatements(sqlFiles)

// statement returns the statement with the given name in sql/*.sql. It panics if there is none.
func statement(name string) string {
	sql, ok := queries[name]
	if !ok {
		panic("sql/*.sql has no statement " + name)
	}
	return sql
}

// parseStatements returns the statements in all files, by name. Each one follows a line with
// "-- name: X". Comments directly below this line are not sent to the server.
func parseStatements(files embed.FS) map[string]string {
	dir, err := files.ReadDir("sql")
	if err != nil {
		panic(err) // impossible: the files are embedded
	}
	statements := map[string]string{}
	for _, file := range dir {
		text, err := files.ReadFile("sql/" + file.Name())
		if err != nil {
			panic(err)
		}
		_, rest, _ := strings.Cut("\n"+string(text), "\n-- name: ")
		for part := range strings.SplitSeq(rest, "\n-- name: ") {
			name, sql, _ := strings.Cut(part, "\n")
			if statements[name] != "" {
				panic(fmt.Sprintf("sql/%s: the name %s is used twice", file.Name(), name))
			}
			for strings.HasPrefix(sql, "--") {
				_, sql, _ = strings.Cut(sql, "\n")
			}
			statements[name] = strings.TrimSuffix(strings.TrimSpace(sql), ";")
		}
	}
	return statements
}
