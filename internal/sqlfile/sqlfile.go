// Package sqlfile reads named SQL statements from embedded files.
package sqlfile

import (
	"fmt"
	"io/fs"
	"strings"
)

// Statements contains SQL statements by name.
type Statements map[string]string

// Load returns the statements in the directory sql of files. Each one follows a line with
// "-- name: X". Comments directly below this line are not part of it. Load panics if two statements
// have the same name.
func Load(files fs.FS) Statements {
	dir, err := fs.ReadDir(files, "sql")
	if err != nil {
		panic(err) // impossible: the files are embedded
	}
	statements := Statements{}
	for _, file := range dir {
		text, err := fs.ReadFile(files, "sql/"+file.Name())
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

// Get returns the statement with a name. It panics if there is none.
func (s Statements) Get(name string) string {
	sql, ok := s[name]
	if !ok {
		panic("sql/*.sql has no statement " + name)
	}
	return sql
}
