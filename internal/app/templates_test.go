package app_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tasker.example/tasker/internal/pgtest"
)

// A server starts although files of its templates are broken: it registers the others, and says
// which are broken in its log, as a component of its readiness, and in a metric.
func TestABrokenTemplateFileStopsNoServer(t *testing.T) {
	t.Parallel()
	o := options(pgtest.New(t).URL)
	useTemplate(t, o)
	dir := folder(t, template+"  - name: two\n    handler: {callable: h}\n") // it is used without the second step
	for name, text := range map[string]string{
		"broken.yaml": strings.Replace(template, "callable", "colable", 1),
		"other.yaml":  strings.Replace(template, "greet", "other", 1),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o.Config.Server.Templates = dir
	s := start(t, o)
	for _, name := range []string{"greet", "other"} {
		s.post("/v1/tasks", fmt.Sprintf(`{"namespace": "n", "name": %q}`, name))
	}
	c := s.ready().Components["templates"]
	for _, w := range []string{"3 errors in 2 files", "broken.yaml: line 6", "greet.yaml", "n/greet 1.0.0 is used by tasks"} {
		if c.Status != "degraded" || !strings.Contains(c.LastError, w) {
			t.Errorf("readiness does not say %q: %+v", w, c)
		}
	}
	for _, w := range []string{"invalid template file not registered", "broken.yaml", "did you mean callable?", "level=ERROR"} {
		if !strings.Contains(s.log.String(), w) {
			t.Errorf("the log does not say %q: %s", w, s.log.String())
		}
	}
	s.await("tasker_templates_broken", 2)
	if _, page, err := s.get("/ui/templates"); err != nil || !strings.Contains(page, "broken.yaml: line 6") {
		t.Errorf("the page of templates does not show the faults: %v, %s", err, page)
	}
}

// Without a broken file nothing is said of templates.
func TestAServerWithSoundTemplates(t *testing.T) {
	t.Parallel()
	o := options(pgtest.New(t).URL)
	o.Config.Server.Templates = folder(t, template)
	s := start(t, o)
	if c, found := s.ready().Components["templates"]; found {
		t.Errorf("readiness says %+v", c)
	}
	s.await("tasker_templates_broken", 0)
}
