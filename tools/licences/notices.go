package licences

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// noticesHead is the beginning of the notices.
const noticesHead = `Tasker has parts that others wrote. These are their licences and notices.
`

// rule separates the parts of the notices.
var rule = "\n" + strings.Repeat("=", 80) + "\n\n"

// Notices writes the full licenses and notices of modules and of external files in released
// programs.
func (l List) Notices(w io.Writer, root string, modules []Module) error {
	var b bytes.Buffer
	b.WriteString(noticesHead)
	for _, m := range modules {
		found, err := l.Licences(m)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(&b, "%s%s\nLicence: %s\n", rule, m, found.expression())
		for _, f := range found {
			writePart(&b, f.Name, f.Text)
		}
		if err := writeNotices(&b, m); err != nil {
			return err
		}
	}
	for _, work := range l.Files {
		if !work.Released {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, work.LicenceFile))
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(&b, "%s%s@%s\nLicence: %s\n", rule, work.Name, work.Version, work.Licence)
		writePart(&b, filepath.Base(work.LicenceFile), text)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// writeNotices writes the NOTICE files that the Apache license requires to be included.
func writeNotices(b *bytes.Buffer, m Module) error {
	for _, dir := range m.dirs() {
		names, err := filesIn(m, dir, noticeName)
		if err != nil {
			return err
		}
		for _, name := range names {
			text, err := os.ReadFile(filepath.Join(m.Dir, name))
			if err != nil {
				return err
			}
			writePart(b, name, text)
		}
	}
	return nil
}

func writePart(b *bytes.Buffer, name string, text []byte) {
	_, _ = fmt.Fprintf(b, "\n-- %s --\n\n%s\n", name, bytes.TrimSpace(text))
}
