// Package licences checks the licenses of all dependencies and vendored files against licences.yaml.
package licences

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
	"go.yaml.in/yaml/v3"
)

//go:embed licences.yaml
var listText []byte

// A List contains the allowed licenses and the licenses of all external modules and files, by SPDX
// identifier.
type List struct {
	Allowed        []string          // in released artifacts
	AllowedOutside []string          `yaml:"allowed_outside"` // additionally allowed in modules that are not released
	Released       map[string]string // modules that are linked into a released program
	Outside        map[string]string // other modules, used by tests, bench and tools
	Files          []Work            // external files in this repository
	Ours           []string          // own files that look like external ones
	Recognised     map[string]string // licenses by the SHA-256 of texts that no tool recognizes
}

// A Work is an external file in this repository.
type Work struct {
	Name        string
	Version     string
	PURL        string // package URL
	Licence     string
	LicenceFile string `yaml:"licence_file"`
	Files       []string
	Released    bool // part of a released program
}

// ReadList returns the list of this repository.
func ReadList() (List, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(listText))
	decoder.KnownFields(true)
	var l List
	if err := decoder.Decode(&l); err != nil {
		return List{}, fmt.Errorf("licences.yaml: %w", err)
	}
	return l, nil
}

// and joins licenses that all apply, as in SPDX expressions.
const and = " AND "

// Check compares modules with the list. If released is true, they are the modules of released
// programs.
func (l List) Check(modules []Module, released bool) error {
	list, name, allowed := l.Released, "released", l.Allowed
	if !released {
		list, name, allowed = l.Outside, "outside", slices.Concat(l.Allowed, l.AllowedOutside)
	}
	var wrong []error
	unused := maps.Clone(list)
	for _, m := range modules {
		want, listed := list[m.Path]
		delete(unused, m.Path)
		found, err := l.Licences(m)
		switch {
		case err != nil:
			wrong = append(wrong, err)
		case !listed:
			wrong = append(wrong, fmt.Errorf("%s is not in the list: look at %s, then add it to %s in licences.yaml", m, found, name))
		case found.expression() != want:
			wrong = append(wrong, fmt.Errorf("%s has %s, and licences.yaml says %s: look at it", m, found, want))
		}
		for _, f := range found {
			if id := f.notIn(allowed); id != "" {
				wrong = append(wrong, fmt.Errorf("%s has the licence %s (%s), which is not allowed: do without it, or allow it in licences.yaml", m, id, f.Name))
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(unused)) {
		wrong = append(wrong, fmt.Errorf("%s is not used any more: remove it from %s in licences.yaml", path, name))
	}
	return errors.Join(wrong...)
}

// CheckFiles compares the external files of the repository with the list. names lists all files of
// the repository.
func (l List) CheckFiles(root string, names []string) error {
	var wrong []error
	listed := slices.Clone(l.Ours)
	for _, w := range l.Files {
		listed = append(listed, w.Files...)
		allowed := l.Allowed
		if !w.Released {
			allowed = slices.Concat(l.Allowed, l.AllowedOutside)
		}
		text, err := os.ReadFile(filepath.Join(root, w.LicenceFile))
		if err != nil {
			wrong = append(wrong, fmt.Errorf("the licence of %s: %w", w.Name, err))
			continue
		}
		f := l.identify(w.LicenceFile, text)
		if got := (Found{f}).expression(); got != w.Licence {
			wrong = append(wrong, fmt.Errorf("%s has %s, and licences.yaml says %s: look at it", w.Name, Found{f}, w.Licence))
		}
		if !slices.Contains(allowed, w.Licence) {
			wrong = append(wrong, fmt.Errorf("%s has the licence %s (%s), which is not allowed", w.Name, w.Licence, w.LicenceFile))
		}
	}
	for _, name := range names {
		if ofOthers.MatchString(name) && !slices.Contains(listed, name) {
			wrong = append(wrong, fmt.Errorf("%s is not in the list: add it to files, or to ours, in licences.yaml", name))
		}
	}
	for _, name := range listed {
		if !slices.Contains(names, name) {
			wrong = append(wrong, fmt.Errorf("%s does not exist: remove it from licences.yaml", name))
		}
	}
	return errors.Join(wrong...)
}

// ofOthers matches files that are likely external: files for browsers and packed files.
var ofOthers = regexp.MustCompile(`^internal/web/static/[^/]+$|\.(min\.(js|css)|woff2?|ttf|otf|eot|wasm|jar|so|dylib|exe)$|(^|/)(vendor|third_party|node_modules)/`)

// A File is a license file.
type File struct {
	Name string // relative to the root of the module or the repository
	Text []byte
	IDs  []string // SPDX identifiers; empty if it is not recognized
}

// notIn returns a license of the file that is not allowed, or "".
func (f File) notIn(allowed []string) string {
	for _, id := range f.IDs {
		if !slices.Contains(allowed, id) {
			return id
		}
	}
	return ""
}

// Found contains the license files of a module.
type Found []File

// expression returns all licenses as an SPDX expression.
func (f Found) expression() string {
	var ids []string
	for _, file := range f {
		ids = append(ids, file.IDs...)
	}
	slices.Sort(ids)
	return strings.Join(slices.Compact(ids), and)
}

// String lists the licenses and their files.
func (f Found) String() string {
	var all []string
	for _, file := range f {
		all = append(all, strings.Join(file.IDs, and)+" ("+file.Name+")")
	}
	return strings.Join(all, ", ")
}

var (
	licenceName = regexp.MustCompile(`(?i)^(licen[cs]es?|copying|unlicense|copyright)([._-].*)?$`)
	noticeName  = regexp.MustCompile(`(?i)^notices?([._-].*)?$`)
	goFile      = regexp.MustCompile(`\.go$`)
)

// coverage is the minimum percentage of a file that must be known license text. The rest is the
// copyright notice and introductions.
const coverage = 75

// Licences returns the license files at the root of a module and in the directories of used
// packages. It returns an error if there is none, or one is not recognized.
func (l List) Licences(m Module) (Found, error) {
	var found Found
	for _, dir := range m.dirs() {
		files, err := filesIn(m, dir, licenceName)
		if err != nil {
			return nil, err
		}
		for _, name := range files {
			text, err := os.ReadFile(filepath.Join(m.Dir, name))
			if err != nil {
				return nil, err
			}
			f := l.identify(name, text)
			if len(f.IDs) == 0 {
				return nil, fmt.Errorf("%s has the file %s, whose licence is not recognised", m, filepath.Join(m.Dir, name))
			}
			found = append(found, f)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s has no file with a licence in %s", m, m.Dir)
	}
	return found, nil
}

// filesIn returns the matching files of a directory, relative to the root of the module.
func filesIn(m Module, dir string, match *regexp.Regexp) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if e.IsDir() || !match.MatchString(e.Name()) || goFile.MatchString(e.Name()) {
			continue
		}
		name, err := filepath.Rel(m.Dir, filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		files = append(files, filepath.ToSlash(name))
	}
	return files, nil
}

// identify returns the licenses in a text.
func (l List) identify(name string, text []byte) File {
	f := File{Name: name, Text: text}
	sum := sha256.Sum256(text)
	if id := l.Recognised[hex.EncodeToString(sum[:])]; id != "" {
		f.IDs = []string{id}
		return f
	}
	covered := licensecheck.Scan(text)
	if covered.Percent < coverage {
		return f
	}
	for _, match := range covered.Match {
		if !match.IsURL && !slices.Contains(f.IDs, match.ID) {
			f.IDs = append(f.IDs, match.ID)
		}
	}
	slices.Sort(f.IDs)
	return f
}
