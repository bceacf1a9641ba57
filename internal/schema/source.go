package schema

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// noTransaction is the first line of migrations that run outside a transaction.
const noTransaction = "-- tasker:no-transaction"

// A source is all SQL that one version of the program brings along.
type source struct {
	migrations []file // in the order of their numbers, which are 1, 2, 3 …
	objects    []file // functions in the order of their names, then views
	checksum   string // of all of them
}

// A file is one SQL file.
type file struct {
	path     string // migrations/0001_init.sql
	version  int    // its number, of a migration
	name     string // init
	sql      string
	checksum string
}

// alone reports whether the file must run outside a transaction.
func (f file) alone() bool {
	first, _, _ := strings.Cut(f.sql, "\n")
	return strings.TrimSpace(first) == noTransaction
}

var migrationName = regexp.MustCompile(`^([0-9]{4})_([a-z0-9_]+)\.sql$`)

func mustLoad(fsys fs.FS) *source {
	s, err := load(fsys)
	if err != nil {
		panic(err)
	}
	return s
}

// load reads a source. A folder may be missing; a file that is not understood
// is an error, because one that is silently skipped is a missing table later.
func load(fsys fs.FS) (*source, error) {
	s := &source{}
	var err error
	if s.migrations, err = readFolder(fsys, "migrations"); err != nil {
		return nil, err
	}
	for i := range s.migrations {
		f := &s.migrations[i]
		m := migrationName.FindStringSubmatch(path.Base(f.path))
		if m == nil {
			return nil, fmt.Errorf("%s: the name of a migration is a number of four digits, _, and lower-case words: 0007_add_leases.sql", f.path)
		}
		f.name = m[2]
		if f.version, err = strconv.Atoi(m[1]); err != nil {
			return nil, fmt.Errorf("%s: %w", f.path, err)
		}
		if f.version != i+1 {
			return nil, fmt.Errorf("%s: its number must be %04d, as migrations are numbered 0001, 0002 … without gaps", f.path, i+1)
		}
	}
	for _, folder := range []string{"functions", "views"} {
		objects, err := readFolder(fsys, folder)
		if err != nil {
			return nil, err
		}
		s.objects = append(s.objects, objects...)
	}
	for _, f := range s.objects {
		if f.alone() {
			return nil, fmt.Errorf("%s: only a migration may run outside the transaction", f.path)
		}
		if !strings.Contains(f.sql, "CREATE OR REPLACE ") {
			return nil, fmt.Errorf("%s: it must say CREATE OR REPLACE, because servers run while it is applied", f.path)
		}
	}
	all := sha256.New()
	for _, list := range [][]file{s.migrations, s.objects} {
		for _, f := range list {
			fmt.Fprintf(all, "%s %s\n", f.checksum, f.path)
		}
	}
	s.checksum = hex.EncodeToString(all.Sum(nil))
	return s, nil
}

// readFolder reads the SQL files of a folder in the order of their names.
func readFolder(fsys fs.FS, folder string) ([]file, error) {
	entries, err := fs.ReadDir(fsys, folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []file
	for _, e := range entries {
		name := path.Join(folder, e.Name())
		if strings.HasPrefix(e.Name(), ".") {
			continue // keeps a folder in git, or belongs to an editor
		}
		if e.IsDir() || path.Ext(name) != ".sql" {
			return nil, fmt.Errorf("%s: only .sql files belong here", name)
		}
		b, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		// A checkout with other line ends is the same file.
		b = bytes.ReplaceAll(b, []byte("\r\n"), []byte("\n"))
		sum := sha256.Sum256(b)
		list = append(list, file{
			path: name, name: strings.TrimSuffix(e.Name(), ".sql"),
			sql: string(b), checksum: hex.EncodeToString(sum[:]),
		})
	}
	return list, nil
}

// hasObject reports whether a function or view has a file.
func (s *source) hasObject(name string) bool {
	return slices.ContainsFunc(s.objects, func(f file) bool { return f.path == name })
}

// newest is the number of the last migration.
func (s *source) newest() int { return len(s.migrations) }

// short is the part of a checksum that is shown to people.
func short(checksum string) string { return checksum[:min(12, len(checksum))] }
