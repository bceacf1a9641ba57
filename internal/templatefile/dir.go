package templatefile

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"tasker.example/tasker"
)

const (
	maxFiles        = 10_000 // templates in one directory tree
	maxFilesFaults  = 200    // listed for all files together
	maxDirMessage   = 50     // lines in the error message
	maxFilesVisited = 100_000
)

// A File is a template and the file that it was read from.
type File struct {
	Path     string // below the given directory
	Source   string // the document
	Template tasker.Template
	Warnings []tasker.Fault // for keys without effect
}

// A FileFault is a fault in one file of a directory.
type FileFault struct {
	File string `json:"file"`
	tasker.Fault
}

// String formats the fault as "orders/a.yaml: line 3: …".
func (f FileFault) String() string { return f.File + ": " + f.Fault.String() }

// LoadDir reads all templates in dir and its subdirectories: files that end in .yaml, .yml or
// .json, in the order of their paths. It skips names that begin with a dot. It follows links to
// files inside dir, but no links to directories.
//
// It omits files with faults and files that define the same template, and returns the faults of
// all files in order. If the directory cannot be read, it returns an Invalid error.
func LoadDir(dir string) ([]File, []FileFault, error) {
	root, err := openDir(dir)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = root.Close() }()
	l := loader{dir: dir, root: root}
	if err := l.findFiles(); err != nil {
		return nil, nil, err
	}
	for _, name := range l.names {
		l.load(name)
	}
	l.checkDuplicates()
	slices.SortStableFunc(l.faults, func(a, b FileFault) int { return cmp.Compare(a.File, b.File) })
	return l.files, l.faults, nil
}

func openDir(dir string) (*os.Root, error) {
	root, err := os.OpenRoot(dir)
	switch {
	case err == nil:
		return root, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, tasker.Errorf(tasker.Invalid, "the template directory %s does not exist", strconv.Quote(dir))
	}
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathError.Err
	}
	return nil, tasker.Errorf(tasker.Invalid, "cannot open the template directory %s: %v", strconv.Quote(dir), err)
}

// loader reads one directory.
type loader struct {
	dir    string
	root   *os.Root
	names  []string // relative to dir, with slashes
	files  []File
	faults []FileFault
}

// findFiles lists the files to read.
func (l *loader) findFiles() error {
	visited := 0
	err := fs.WalkDir(l.root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if visited++; visited > maxFilesVisited || len(l.names) > maxFiles {
			return errTooMany
		}
		if err != nil {
			l.addUnreadable(name, err)
			return nil
		}
		hidden := name != "." && strings.HasPrefix(entry.Name(), ".")
		switch {
		case hidden && entry.IsDir():
			return fs.SkipDir
		case !hidden && !entry.IsDir() && isTemplateName(name):
			l.names = append(l.names, name)
		}
		return nil
	})
	slices.Sort(l.names)
	if errors.Is(err, errTooMany) {
		return tasker.Errorf(tasker.Invalid,
			"the template directory %s has more than %d templates or %d files; is it the right directory?",
			strconv.Quote(l.dir), maxFiles, maxFilesVisited)
	}
	return err
}

var errTooMany = errors.New("too many files")

func isTemplateName(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(path.Ext(name)))
}

func (l *loader) load(name string) {
	doc, err := l.read(name)
	if err != nil {
		l.addUnreadable(name, err)
		return
	}
	if doc == nil {
		return
	}
	read := Parse
	if strings.EqualFold(path.Ext(name), ".json") {
		read = ParseJSON
	}
	t, warnings, err := read(doc)
	if err != nil {
		l.addFault(name, err)
		return
	}
	l.files = append(l.files, File{Path: l.relativePath(name), Source: string(doc), Template: t, Warnings: warnings})
}

// read returns the content of a file, or nil for a directory that is named like a template. It
// opens only regular files, because a pipe would block.
func (l *loader) read(name string) ([]byte, error) {
	info, err := l.root.Stat(name)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, nil
	case !info.Mode().IsRegular():
		return nil, errors.New("not a regular file")
	}
	f, err := l.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	doc, err := io.ReadAll(io.LimitReader(f, tasker.MaxTemplateBytes+1))
	if err != nil {
		return nil, err
	}
	if len(doc) > tasker.MaxTemplateBytes {
		return nil, fmt.Errorf("has %d bytes; the limit is %d", max(info.Size(), int64(len(doc))), tasker.MaxTemplateBytes)
	}
	return append([]byte{}, doc...), nil
}

func (l *loader) relativePath(name string) string {
	return filepath.Join(l.dir, filepath.FromSlash(name))
}

func (l *loader) addUnreadable(name string, err error) {
	message := err.Error()
	if where, ok := errors.AsType[*fs.PathError](err); ok {
		message = "cannot be read: " + where.Err.Error()
	}
	l.faults = append(l.faults, FileFault{File: l.relativePath(name), Fault: tasker.Fault{Message: message}})
}

// addFault records err, or all faults of a document if err contains them.
func (l *loader) addFault(name string, err error) {
	if e, ok := errors.AsType[*tasker.Error](err); ok {
		if list, ok := e.Details.([]tasker.Fault); ok {
			for _, fault := range list {
				l.faults = append(l.faults, FileFault{File: l.relativePath(name), Fault: fault})
			}
			return
		}
	}
	l.addUnreadable(name, err)
}

// checkDuplicates removes templates that several files define.
func (l *loader) checkDuplicates() {
	type key struct{ namespace, name, version string }
	keyOf := func(f File) key { return key{f.Template.Namespace, f.Template.Name, f.Template.Version} }
	first, duplicate := make(map[key]string, len(l.files)), map[key]bool{}
	for _, f := range l.files {
		k := keyOf(f)
		before, found := first[k]
		if !found {
			first[k] = f.Path
			continue
		}
		duplicate[k] = true
		l.faults = append(l.faults, FileFault{File: f.Path, Fault: tasker.Fault{
			Message: fmt.Sprintf("duplicate template %s/%s %s, also in %s: remove one, or change its "+
				"version", k.namespace, k.name, k.version, before)}})
	}
	l.files = slices.DeleteFunc(l.files, func(f File) bool { return duplicate[keyOf(f)] })
}

// NewFaultsError returns all faults in a directory as one Invalid error with a line for each and
// with the faults as details. It returns nil if there are none.
func NewFaultsError(dir string, faults []FileFault) error {
	if len(faults) == 0 {
		return nil
	}
	files := map[string]bool{}
	for _, f := range faults {
		files[f.File] = true
	}
	var b strings.Builder
	fmt.Fprintf(&b, "the templates in %s have %s in %s:", strconv.Quote(dir), formatCount(len(faults), "error"), formatCount(len(files), "file"))
	for _, f := range faults[:min(len(faults), maxDirMessage)] {
		b.WriteString("\n  " + f.String())
	}
	if more := len(faults) - maxDirMessage; more > 0 {
		fmt.Fprintf(&b, "\n  and %d more", more)
	}
	return (&tasker.Error{Code: tasker.Invalid, Message: b.String()}).
		WithDetails(faults[:min(len(faults), maxFilesFaults)])
}

func formatCount(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
