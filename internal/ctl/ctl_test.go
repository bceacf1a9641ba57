package ctl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/cli"
)

// run runs the command without a server.
func run(stdin string, args ...string) (code int, stdout, stderr string) {
	return runAt("http://127.0.0.1:1", stdin, args...)
}

// runAt runs the command with the server at url.
func runAt(url, stdin string, args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	env := []string{"TASKER_URL=" + url, "TASKER_ACTOR=ops@example.com"}
	code = Main(append([]string{"tasker-ctl"}, args...), strings.NewReader(stdin), &out, &err, env)
	return code, out.String(), err.String()
}

// leaves calls f with every command that does something.
func leaves(c *cobra.Command, f func(*cobra.Command)) {
	if c.Name() == "completion" || c.Name() == "help" {
		return // cobra's own
	}
	if !isGroup(c) {
		f(c)
	}
	for _, below := range c.Commands() {
		leaves(below, f)
	}
}

// isGroup reports whether a command does nothing by itself.
func isGroup(c *cobra.Command) bool { return c.HasSubCommands() && len(cli.Arguments(c.Use)) == 0 }

// shellValue matches a variable or the output of a command as the value of a flag for an id.
var shellValue = regexp.MustCompile(`(?:\$[A-Z_]+|\$\(.*\))`)

// Every example in the help is a command line that is understood.
func TestHelpExamplesAreValid(t *testing.T) {
	p := &program{env: map[string]string{}}
	leaves(p.newRootCommand("tasker-ctl"), func(c *cobra.Command) {
		if c.Short == "" || c.Example == "" {
			t.Errorf("%s has no sentence or no example", c.CommandPath())
		}
		if !strings.Contains(c.Example, c.CommandPath()) {
			t.Errorf("the examples of %s do not show it", c.CommandPath())
		}
		joined := strings.NewReplacer("\\\n", " ", "$SEEN", "2026-01-31T12:00:00Z").Replace(c.Example)
		joined = shellValue.ReplaceAllString(joined, "0192f0c1-7a3e-7c4d-9b1e-2f5a6c7d8e9f")
		for line := range strings.Lines(joined) {
			_, after, found := strings.Cut(line, "tasker-ctl ")
			if !found {
				continue
			}
			words := words(after)
			root := p.newRootCommand("tasker-ctl")
			shown, rest, err := root.Find(words)
			if err == nil {
				err = shown.ParseFlags(rest)
			}
			if err == nil {
				err = shown.ValidateArgs(shown.Flags().Args())
			}
			if err != nil || isGroup(shown) {
				t.Errorf("%s: example %q is no command: %v", c.CommandPath(), strings.TrimSpace(line), err)
			}
		}
	})
}

func TestFlagsTakeTextsAsTheyAreAndDays(t *testing.T) {
	p := &program{env: map[string]string{}}
	leaves(p.newRootCommand("tasker-ctl"), func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			switch f.Value.Type() {
			case "stringSlice":
				t.Errorf("%s --%s reads its value as CSV: use StringArrayVar", c.CommandPath(), f.Name)
			case "stringArray":
				if err := f.Value.Set(`say "hi", west`); err != nil || !slices.Contains(f.Value.(pflag.SliceValue).GetSlice(), `say "hi", west`) {
					t.Errorf("%s --%s changes its value (error %v)", c.CommandPath(), f.Name, err)
				}
			case "duration":
				if err := f.Value.Set("1d"); err != nil && !strings.Contains(err.Error(), " to ") {
					t.Errorf("%s --%s does not take days: %v", c.CommandPath(), f.Name, err)
				}
			}
		})
	})
}

// words splits a line as a shell does, up to a pipe, a redirection or a bracket.
func words(line string) []string {
	var list []string
	var word strings.Builder
	quoted, inner := rune(0), false
	flush := func() {
		if word.Len() > 0 {
			list = append(list, word.String())
			word.Reset()
		}
	}
	for _, r := range line {
		switch {
		case inner: // of $(…), which stands for one word
			inner = r != ')'
		case r == '(':
			inner = true
		case quoted != 0 && r == quoted:
			quoted = 0
		case quoted != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quoted = r
		case r == '|' || r == '>' || r == '<' || r == ')' || r == '#':
			flush()
			return list
		case r == ' ' || r == '\n' || r == '\t':
			flush()
		default:
			word.WriteRune(r)
		}
	}
	flush()
	return list
}

func TestExitCodes(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("x"), 1},
		{tasker.Errorf(tasker.Invalid, "x"), 1},
		{tasker.Errorf(tasker.Internal, "x"), 1},
		{tasker.Errorf(tasker.TooLarge, "x"), 1},
		{cli.Usagef("x"), 2},
		{fmt.Errorf("wrapped: %w", tasker.Errorf(tasker.NotFound, "x")), 3},
		{tasker.Errorf(tasker.Conflict, "x"), 4},
		{tasker.Errorf(tasker.StaleLease, "x"), 4},
		{tasker.Errorf(tasker.Unavailable, "x"), 5},
		{errInterrupted, 130},
		{cli.Exit(1), 1},
	} {
		if got := exitCode(tt.err); got != tt.want {
			t.Errorf("%v exits with %d, want %d", tt.err, got, tt.want)
		}
	}
}

func TestNothingReachesTheTerminal(t *testing.T) {
	hostile := "a\x1b[2Jb\x07c\u009b31md\r\ne\u202ef\u2066g\x00h\xff"
	if got, want := clean(hostile), "abcd e[RLO]f[LRI]gh\ufffd"; got != want {
		t.Errorf("clean: %q, want %q", got, want)
	}
	var out bytes.Buffer
	p := &program{out: &out, output: "json", env: map[string]string{}}
	if err := p.printJSON(map[string]string{"text": hostile}); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.ContainsAny(got, "\x1b\x07\u009b\u202e\u2066\x00") || !strings.Contains(got, `\u009b31md`) {
		t.Errorf("json: %q", got)
	}
	out.Reset()
	p.printTable([]string{"x"}, [][]string{{hostile}, {strings.Repeat("ä", 100)}})
	if want := "X\nabcd e[RLO]f[LRI]gh\ufffd\n" + strings.Repeat("ä", maxCell-1) + "…\n"; out.String() != want {
		t.Errorf("table: %q, want %q", out.String(), want)
	}
}

func TestDetailsOfErrors(t *testing.T) {
	for _, tt := range []struct {
		details any
		want    string
	}{
		{nil, ""},
		{[]any{map[string]any{"line": 3.0, "path": "steps[0]", "message": "bad"}}, "line 3: steps[0]: bad"},
		{[]any{map[string]any{"file": "a.yaml", "message": "bad"}}, "a.yaml: bad"},
		{map[string]any{"b": 1, "a": "x"}, "a: x|b: 1"},
		{"word", `"word"`},
	} {
		if got := strings.Join(formatDetails(tt.details), "|"); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.details, got, tt.want)
		}
	}
}

func TestDetailsRepeatNothing(t *testing.T) {
	fault := tasker.Fault{Path: "limit", Message: "must be a number"}
	other := tasker.Fault{Path: "offset", Message: "must be a number"}
	for _, tt := range []struct {
		faults []tasker.Fault
		want   string
	}{
		{[]tasker.Fault{fault}, "Error: not valid: limit: must be a number\n"},
		{[]tasker.Fault{fault, other}, "Error: not valid: limit: must be a number\n  offset: must be a number\n"},
	} {
		var out bytes.Buffer
		p := &program{err: &out, env: map[string]string{}}
		p.printError("tasker-ctl", tasker.Errorf(tasker.Invalid, "not valid: %s", fault).WithDetails(tt.faults))
		if out.String() != tt.want {
			t.Errorf("printed %q, want %q", out.String(), tt.want)
		}
	}
}

// Any part of a snapshot may be hidden.
func TestHiddenEvidence(t *testing.T) {
	step := uuid.MustParse(anID)
	for _, tt := range []struct{ snapshot, want string }{
		{`null`, ""},
		{`"[redacted]"`, ""},
		{`{"steps": "[redacted]"}`, "\n  Task Snapshot, as of 2026-03-01T12:00:00Z:\n"},
		{`{"redaction_failed": "why"}`, "Redaction failed: why"},
		{`{"snapshot_failed": "why"}`, "Snapshot failed: why"},
		{`{"steps": ["[redacted]", {"step_uuid": "` + anID + `", "name": "charge", "attempts": "[redacted]", "error": "[redacted]"}]}`,
			`Error: "[redacted]"`},
		{`{"task": "[redacted]", "time_in_state_minutes": "[redacted]"}`, "Time in state: [redacted]"},
	} {
		var out bytes.Buffer
		p := &program{out: &out, env: map[string]string{}}
		p.printEntry(tasker.Entry{StepUUID: &step, At: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Snapshot: json.RawMessage(tt.snapshot)}, false)
		if !strings.Contains(out.String(), tt.want) {
			t.Errorf("%s: printed %q, want %q", tt.snapshot, out.String(), tt.want)
		}
	}
}

// The step that has failed now is said beside the one of the evidence.
func TestTheStepThatHasFailedNow(t *testing.T) {
	failed := &tasker.FailedStep{Name: "ship_order", Since: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	const want = "ship_order failed since 2026-03-01T12:00:00Z"
	var out bytes.Buffer
	p := &program{out: &out, env: map[string]string{}}
	p.printEntry(tasker.Entry{FailedStep: failed}, false)
	if !strings.Contains(out.String(), "Failed now: "+want) {
		t.Errorf("an entry: %s", out.String())
	}
	out.Reset()
	p.printInvestigations([]tasker.InvestigationQueueEntry{{FailedStep: failed}})
	if !strings.Contains(out.String(), "FAILED NOW\n") || !strings.Contains(out.String(), want) {
		t.Errorf("the queue: %s", out.String())
	}
}

// By when the task is due is said where it is due at all.
func TestWhenTheTaskOfAnInvestigationIsDue(t *testing.T) {
	due := &tasker.Deadline{DueAt: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), State: "overdue", Overdue: "investigate", SetBy: "ann"}
	var out bytes.Buffer
	p := &program{out: &out, env: map[string]string{}}
	p.printEntry(tasker.Entry{TaskDue: due}, false)
	if !strings.Contains(out.String(), "Task due: 2026-03-01T12:00:00Z (overdue, investigated when overdue, set by ann)") {
		t.Errorf("an entry: %s", out.String())
	}
	out.Reset()
	p.printInvestigations([]tasker.InvestigationQueueEntry{{}, {TaskDue: due}})
	if s := out.String(); !strings.Contains(s, "TASK DUE\n") || !strings.Contains(s, " -\n") || !strings.Contains(s, " 2026-03-01T12:00:00Z (overdue)\n") {
		t.Errorf("the queue: %s", s)
	}
}

func TestDocumentsComeFromStandardInput(t *testing.T) {
	code, _, stderr := run(`[1, 2]`, "task", "submit", "-n", "a", "--name", "b", "--context", "@-")
	if code != cli.ExitUsage || !strings.Contains(stderr, "must be a JSON object") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	code, _, stderr = run(`{"a": 1}`, "task", "submit", "-n", "a", "--name", "b", "--context", "@-")
	if code != exitUnreachable {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

func TestDocumentsMayBeginWithAByteOrderMark(t *testing.T) {
	p := &program{in: strings.NewReader("\ufeff{\"order\": 7}")}
	doc, err := p.readJSONObject("context", "@-")
	if err != nil || string(doc) != `{"order": 7}` {
		t.Errorf("document %q, error %v", doc, err)
	}
}
