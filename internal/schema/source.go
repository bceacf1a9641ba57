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

// noTransaction is the first line of migrations that run outside of a transaction.
const noTransaction = "-- tasker:no-transaction"

// source contains all SQL files of one version of the program.
type source struct {
	migrations []file // ordered by number: 1, 2, 3 …
	objects    []file // functions by name, then views by name
	checksum   string // of all files
}

// file is one SQL file.
type file struct {
	path     string // migrations/0001_init.sql
	version  int    // number of a migration
	name     string // init
	sql      string
	checksum string
}

// runsAlone reports whether the file must run outside of a transaction.
func (f file) runsAlone() bool {
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

// load reads a source. Each folder is optional. It returns an error for unknown files instead of
// skipping them.
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
			return nil, fmt.Errorf("%s: invalid migration name: must be four digits, _ and lower-case words, such as "+
				"0007_add_leases.sql", f.path)
		}
		f.name = m[2]
		if f.version, err = strconv.Atoi(m[1]); err != nil {
			return nil, fmt.Errorf("%s: %w", f.path, err)
		}
		if f.version != i+1 {
			return nil, fmt.Errorf("%s: number must be %04d, as migrations are numbered from 0001 "+
				"without gaps", f.path, i+1)
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
		if f.runsAlone() {
			return nil, fmt.Errorf("%s: only a migration may run outside the transaction", f.path)
		}
		if !strings.Contains(f.sql, "CREATE OR REPLACE ") {
			return nil, fmt.Errorf("%s: must contain CREATE OR REPLACE, because servers run while it is "+
				"applied", f.path)
		}
	}
	all := sha256.New()
	for _, f := range slices.Concat(s.migrations, s.objects) {
		fmt.Fprintf(all, "%s %s\n", f.checksum, f.path)
	}
	s.checksum = hex.EncodeToString(all.Sum(nil))
	return s, nil
}

// readFolder reads the SQL files of a folder, ordered by name.
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
			continue // such as .gitkeep
		}
		if e.IsDir() || path.Ext(name) != ".sql" {
			return nil, fmt.Errorf("%s: only .sql files belong here", name)
		}
		b, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		// The checksum must not depend on the line endings of the checkout.
		b = bytes.ReplaceAll(b, []byte("\r\n"), []byte("\n"))
		sum := sha256.Sum256(b)
		list = append(list, file{
			path: name, name: strings.TrimSuffix(e.Name(), ".sql"),
			sql: string(b), checksum: hex.EncodeToString(sum[:]),
		})
	}
	return list, nil
}

func (s *source) hasObject(name string) bool {
	return slices.ContainsFunc(s.objects, func(f file) bool { return f.path == name })
}

// newest returns the number of the last migration, or 0 if there is none.
func (s *source) newest() int { return len(s.migrations) }

// shortChecksum returns the part of a checksum that is displayed.
func shortChecksum(checksum string) string { return checksum[:min(12, len(checksum))] }
