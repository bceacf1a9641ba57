package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker/internal/testtool"
	"tasker.example/tasker/sdk/conformance/cases"
	"tasker.example/tasker/sdk/conformance/scripted"
)

// page returns the protocol page.
func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(cases.Page)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Each case is named by a rule of its section, and each name is a case.
func TestRulesNameTheirCases(t *testing.T) {
	named := map[string]string{} // section by case
	arrow, name := regexp.MustCompile("→((?:\\s*`[a-z0-9-]+`,?)+)"), regexp.MustCompile("`([a-z0-9-]+)`")
	_, rules, _ := strings.Cut(page(t), "\n## Rules for production\n")
	rules, _, _ = strings.Cut(rules, "\n## ")
	for part := range strings.SplitSeq(rules, "\n### ") {
		section, text, _ := strings.Cut(part, "\n")
		for _, list := range arrow.FindAllStringSubmatch(text, -1) {
			for _, m := range name.FindAllStringSubmatch(list[1], -1) {
				if named[m[1]] != "" {
					t.Errorf("the case %s is named twice", m[1])
				}
				named[m[1]] = section
			}
		}
	}
	for _, c := range cases.All() {
		if got := named[c.Name]; got != c.Section {
			t.Errorf("the case %s is named in the section %q, want %q", c.Name, got, c.Section)
		}
		delete(named, c.Name)
	}
	for name, section := range named {
		t.Errorf("the section %q names %q, which is no case", section, name)
	}
}

// The first worker of the page completes the task of its template, although a report and a
// heartbeat have no response.
func TestFirstWorkerOfThePage(t *testing.T) {
	python := testtool.Find(t, "python3", "install Python 3")
	_, program, found := strings.Cut(page(t), "```python\n")
	program, _, ended := strings.Cut(program, "```")
	if lines := strings.Count(program, "\n"); !found || !ended || lines > 65 {
		t.Fatalf("the page has no Python program of about 60 lines: it has %d", lines)
	}
	file := filepath.Join(t.TempDir(), "worker.py")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	server, err := scripted.New(100*time.Millisecond, 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }() // the test has ended
	server.SetKeys("tsk_first")
	server.On(scripted.Report, 1, scripted.Lose)
	server.On(scripted.Beat, 1, scripted.Page(502))
	worker := exec.Command(python, file)
	worker.Env = append(os.Environ(), "TASKER_URL="+server.URL(), "TASKER_TOKEN=tsk_first")
	var output strings.Builder
	worker.Stdout, worker.Stderr = &output, &output
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = worker.Process.Kill() // it runs until then
		_ = worker.Wait()
	}()
	compose := server.Enqueue(scripted.Step{Handler: "compose", Context: map[string]any{"who": "you"}})
	send := server.Enqueue(scripted.Step{Handler: "send", Results: map[string]any{"compose": "Hello, you"}})
	bad := server.Enqueue(scripted.Step{Handler: "compose"})
	all := []*scripted.Step{compose, send, bad}
	done := server.Wait(30*time.Second, func() bool {
		for _, step := range all {
			if step.Accepted() == nil {
				return false
			}
		}
		return len(server.Requests(scripted.Beat)) > 1
	})
	if !done || len(server.Violations()) > 0 {
		t.Fatalf("the steps have no outcomes, or %v\n%s", server.Violations(), server.Transcript())
	}
	if got := string(compose.Accepted().Result.Result); got != `"Hello, you"` {
		t.Errorf("compose returned %s", got)
	}
	if got := string(send.Accepted().Result.Result); got != `{"sent": "Hello, you"}` {
		t.Errorf("send returned %s", got)
	}
	if o := bad.Accepted(); o.Success || o.Error.Type != "KeyError" {
		t.Errorf("a step without its input reported %+v", o)
	}
}
