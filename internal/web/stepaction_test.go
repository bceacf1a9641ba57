package web_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/ctl"
	"tasker.example/tasker/internal/enginetest"
)

func TestStepFormReportsInvalidInput(t *testing.T) {
	t.Parallel()
	st := newStuck(t)
	entry := "entry=" + st.entry.String()
	for _, tt := range []struct {
		word   string
		fields []string
		status int
		says   string
	}{
		{"reset", []string{"actor=ann"}, 400, "The reason is missing"},
		{"reset", []string{"reason=the <b>bank</b> is back"}, 400, "Your name is missing"},
		{"reset", []string{"reason=x", "actor=a\nb"}, 400, "must be one line"},
		{"resolve", []string{"reason=" + strings.Repeat("x", 20_001), "actor=ann"}, 400, "20000"},
		{"complete", []string{"reason=x", "actor=ann"}, 400, "The result is missing"},
		{"complete", []string{"reason=x", "actor=ann", `result={"a": 1, "a": 2}`}, 400, `"a"`},
		{"complete", []string{"reason=x", "actor=ann", `result={"half": `}, 400, `{"half": `},
		{"complete", []string{"reason=x", "actor=ann", `result=1`, `metadata=[1]`}, 400, "must be a JSON object"},
		{"complete", []string{"reason=x", "actor=ann", `result=1`, `metadata={"a":`}, 400, "metadata"},
		{"complete", []string{"reason=x", "actor=ann", `result="` + strings.Repeat("x", 1<<20) + `"`}, 413, "limit"},
		{"reset", []string{"reason=x", "actor=ann", "entry=javascript:alert(1)"}, 400, "Invalid entry"},
	} {
		r := st.post(st.action(tt.word), append([]string{entry}, tt.fields...)...)
		st.shows(r, tt.status, tt.says)
		if !strings.Contains(r.text, `role="alert"`) {
			t.Errorf("%s %.80q: no alert", tt.word, tt.fields)
		}
	}
	r := st.post(st.action("complete"), entry, "reason=kept <i>as typed</i>", "actor=ann", "result={")
	st.shows(r, http.StatusBadRequest, ">kept <i>as typed</i></textarea>", ">{</textarea>", `value="`+st.entry.String()+`"`)
	if s := st.stepOf("charge"); s.State != tasker.StepError {
		t.Errorf("the step is %s", s.State)
	}
}

func TestImpossibleStepActionsAreRefused(t *testing.T) {
	t.Parallel()
	st := newStuck(t)
	other := newID()
	for path, status := range map[string]int{
		fmt.Sprintf("/ui/tasks/%s/steps/%s/reset", other, st.step):                         404,
		fmt.Sprintf("/ui/tasks/%s/steps/%s/reset", st.task, other):                         404,
		fmt.Sprintf("/ui/tasks/%s/steps/x/reset", st.task):                                 404,
		fmt.Sprintf("/ui/tasks/%s/steps/%s/explode", st.task, st.step):                     404,
		fmt.Sprintf("/ui/tasks/%s/steps/%s/reset", st.task, st.stepOf("reserve").UUID):     409,
		fmt.Sprintf("/ui/tasks/%s/steps/%s/reset", st.task, st.stepOf("ship").UUID):        409,
		fmt.Sprintf("/ui/tasks/%s/steps/%s/resolve", st.task, st.stepOf("reserve").UUID):   409,
		st.action("reset") + "?entry=1":                                                    400,
		fmt.Sprintf("/ui/tasks/%s/steps/%s/resolve?entry=%s", st.task, st.step, newID()):   404,
		fmt.Sprintf("/ui/tasks/%s/steps/%s/complete", st.task, st.stepOf("announce").UUID): 200,
	} {
		if r := st.get(path); r.status != status {
			t.Errorf("%s is answered with %d, want %d", path, r.status, status)
		}
	}
	r := st.get(fmt.Sprintf("/ui/tasks/%s/steps/%s/reset", st.task, st.stepOf("ship").UUID))
	st.shows(r, http.StatusConflict, "The step is pending: it cannot be reset.")
	if strings.Contains(r.text, `name="reason"`) {
		t.Error("offers a form for what is not possible")
	}
	// A second operator, whose page is old, learns of the first.
	st.at(st.post(st.action("resolve"), "reason=x", "actor=ann"), "/ui/tasks/"+st.task.String())
	st.shows(st.post(st.action("resolve"), "reason=x", "actor=bob"), http.StatusConflict, "The step is resolved manually: it cannot be resolved.")

	done, status := tasker.EntryPermanentlyFailed, "written off"
	st.Must(st.Engine.CancelTask(t.Context(), st.task, "ann", "x"))
	st.update(st.entry, tasker.EntryUpdate{Status: &done, Notes: &status, Actor: "ann"})
	st.shows(st.get(st.action("reset")), http.StatusConflict, "The task is cancelled")
}

func newID() tasker.ID { return tasker.NewID() }

// Who takes a step away from a worker must say so.
func TestAStepIsTakenFromAWorker(t *testing.T) {
	t.Parallel()
	st := newStuck(t)
	st.operateStep(st.task, st.step, tasker.ActionRequest{Action: tasker.ResetForRetry, Actor: "ann", Reason: "again"})
	st.shows(st.get(st.action("resolve")), http.StatusOK, "The step is enqueued", `name="interrupt"`, "--interrupt")
	list := st.claim(1)
	st.shows(st.get(st.action("resolve")), http.StatusOK, "Worker "+st.worker.String()+" is running the step.")
	st.shows(st.post(st.action("resolve"), "reason=x", "actor=bob"), http.StatusConflict, "set interrupt", ">x</textarea>")
	r := st.post(st.action("resolve"), "reason=x", "actor=bob", "interrupt=1", "entry="+st.entry.String())
	st.shows(r, http.StatusOK, "Step charge was resolved. It is now resolved manually")
	receipt, err := st.Engine.Report(t.Context(), st.worker, []tasker.Outcome{{Lease: list[0].Lease(), Success: true, Result: json.RawMessage(`1`)}}, 0)
	st.Must(err)
	if len(receipt.Rejected) != 1 {
		t.Errorf("the worker's report is taken: %+v", receipt)
	}
	st.shows(st.get(st.page()), http.StatusOK, "resolve manually ·", "after the investigation was opened")
}

// What a form foresees is what the engine then does.
func TestForecastMatchesTheEngine(t *testing.T) {
	t.Parallel()
	st := newStuck(t)
	for word, enqueues := range map[string]string{"reset": "", "resolve": "2 other steps are enqueued: ", "complete": "2 other steps are enqueued: "} {
		st = st.stuckTask()
		form := st.get(st.action(word))
		st.sees(form, enqueues)
		foreseen := regexp.MustCompile(`Expected task state: <span class="chip \w+">([a-z ]+)<`).FindStringSubmatch(form.text)
		enqueued := regexp.MustCompile(`<strong>(\w+)</strong>`).FindAllStringSubmatch(form.text, -1)
		st.post(st.action(word), "reason=x", "actor=ann", "result=1", "entry="+st.entry.String())
		if state := st.State(st.task); len(foreseen) != 2 || foreseen[1] != strings.ReplaceAll(string(state), "_", " ") {
			t.Errorf("%s: foresaw %q, the task is %s", word, foreseen, state)
		}
		for _, e := range enqueued {
			if s := st.stepOf(e[1]); (s.State == tasker.StepEnqueued) != (word != "reset") {
				t.Errorf("%s: step %s is %s", word, s.Name, s.State)
			}
		}
		if len(enqueued) != 2 {
			t.Errorf("%s: names %q", word, enqueued)
		}
	}
}

// calls are the two commands of a page, as a shell takes them apart.
func (h *harness) calls(r reply) (cli, curl []string) {
	h.Helper()
	return h.callsWith(r)
}

// callsWith is calls with more variables of the environment.
func (h *harness) callsWith(r reply, env ...string) (cli, curl []string) {
	h.Helper()
	found := regexp.MustCompile(`(?s)<pre class="copy" tabindex="0">((?:tasker-ctl|TASKER_ACTOR|curl).*?)</pre>`).FindAllStringSubmatch(r.text, -1)
	if len(found) != 2 {
		h.Fatalf("%s shows %d commands", r.url, len(found))
	}
	words := func(line string) []string {
		line = strings.Replace(line, "tasker-ctl ", "ctl ", 1) // no name of a function in sh
		script := `ctl() { printf '%s\0' "actor=$TASKER_ACTOR" "$@"; }; curl() { printf '%s\0' "$@"; }; ` + html.UnescapeString(line)
		cmd := exec.CommandContext(h.Context(), "sh", "-c", script)
		cmd.Env = append(os.Environ(), env...)
		out, err := cmd.Output()
		h.Must(err)
		return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	}
	return words(found[0][1]), words(found[1][1])
}

// ctl runs a command of tasker-ctl as the page shows it.
func (h *harness) ctl(words []string) {
	h.Helper()
	var said bytes.Buffer
	actor := "TASKER_ACTOR=" + strings.TrimPrefix(words[0], "actor=")
	if code := ctl.Main(append([]string{"tasker-ctl"}, words[1:]...), strings.NewReader(""), &said, &said, []string{actor}); code != 0 {
		h.Errorf("tasker-ctl %q ends with %d: %s", words, code, &said)
	}
}

// says runs tasker-ctl with variables of the environment, and returns what it prints.
func (h *harness) says(env []string, words ...string) string {
	h.Helper()
	var said bytes.Buffer
	if code := ctl.Main(append([]string{"tasker-ctl"}, words...), strings.NewReader(""), &said, &said, env); code != 0 {
		h.Errorf("tasker-ctl %q ends with %d: %s", words, code, &said)
	}
	return said.String()
}

// curl sends the request that a command of curl would send.
func (h *harness) curl(words []string) {
	h.Helper()
	flag := func(name string) string {
		if i := slices.Index(words, name); i >= 0 {
			return words[i+1]
		}
		return ""
	}
	url := words[slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "http") })]
	r, err := http.NewRequestWithContext(h.Context(), flag("-X"), url, strings.NewReader(flag("--data-raw")))
	h.Must(err)
	for i, word := range words {
		if word == "-H" {
			name, value, _ := strings.Cut(words[i+1], ": ")
			r.Header.Set(name, value)
		}
	}
	if got := h.do(r); got.status/100 != 2 {
		h.Errorf("curl %q is answered with %d: %s", words, got.status, got.text)
	}
}

// call does by a tool what a page says for it.
func (h *harness) call(tool string, r reply) {
	h.Helper()
	if cli, curl := h.calls(r); tool == "curl" {
		h.curl(curl)
	} else {
		h.ctl(cli)
	}
}

// What a page says to type in a terminal does the same as the form.
func TestShownCommandsActOnAStep(t *testing.T) {
	t.Parallel()
	const reason = "it's \"back\",\n$HOME and `id` — ☠"
	st := newStuck(t)
	for _, word := range []string{"reset", "resolve", "complete"} {
		for _, tool := range []string{"tasker-ctl", "curl"} {
			st = st.stuckTask()
			st.operateStep(st.task, st.step, tasker.ActionRequest{Action: tasker.ResetForRetry, Actor: "ann", Reason: "again"})
			st.work(func(a tasker.Assignment) error { return errors.New("again") })
			// Refused for its actor, so that the page shows what was typed.
			r := st.post(st.action(word), "reason="+strings.ReplaceAll(reason, "\n", "\r\n"), `result={"paid": 12.50, "by": "ann's"}`, `metadata={"m": 1}`)
			st.shows(r, http.StatusBadRequest, "Your name is missing")
			st.call(tool, r)
			moves, _, err := st.DB.NewestStepTransitions(t.Context(), st.task, st.step, 10)
			st.Must(err)
			i := slices.IndexFunc(moves, func(m tasker.Transition) bool { return m.Actor != "" })
			if m := moves[i]; m.Reason != reason || m.Actor != "you@example.com" || !strings.HasPrefix(m.Event, word) {
				t.Errorf("%s by %s: the last move is %+v", word, tool, m)
			}
			if s := st.stepOf("charge"); word == "complete" && !strings.Contains(string(s.Results), "ann's") {
				t.Errorf("completed by %s with %s", tool, s.Results)
			}
		}
	}
}

// A task needs no investigation for somebody to act on its steps.
func TestAStepOfATaskWithoutAnInvestigation(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.Template("order", step("charge"))
	st := &stuck{harness: h, task: h.create("order", `{}`)}
	st.step = st.stepOf("charge").UUID
	st.shows(st.get(st.action("resolve")), http.StatusOK, "The step is enqueued", "Expected task state: <span class=\"chip good\">complete</span>")
	st.at(st.post(st.action("resolve"), "reason=not needed", "actor=ann", "interrupt=1"), "/ui/tasks/"+st.task.String())
	if s := st.stepOf("charge"); s.State != tasker.StepResolvedManually {
		t.Errorf("the step is %s", s.State)
	}
	made, err := h.Engine.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: enginetest.Namespace, Name: "order", Context: json.RawMessage(`{}`), StartAt: time.Now().Add(time.Hour)}})
	h.Must(err)
	st.task = made[0].TaskUUID
	st.step = st.stepOf("charge").UUID
	st.shows(st.get(st.action("resolve")), http.StatusConflict, "The task has not started yet")
}

// A terminal reaches the server as the browser does.
func TestCommandsNameTheServer(t *testing.T) {
	t.Parallel()
	st := newStuck(t)
	st.shows(st.get(st.action("reset")), http.StatusOK, "tasker-ctl --server "+st.server.URL+" task reset-step "+st.task.String())
	st.shows(st.get(st.action("reset"), "X-Forwarded-Proto: https"), http.StatusOK, strings.Replace(st.server.URL, "http:", "https:", 1)+"/v1/tasks/"+st.task.String()+"/workflow_steps/")
}

// A page that is older than what it shows does not act on what nobody has looked at.
func TestStaleStepFormIsRefused(t *testing.T) {
	t.Parallel()
	st := newStuck(t)
	form := st.get(st.action("resolve"))
	seen := regexp.MustCompile(`name="seen" value="([^"]+)"`).FindStringSubmatch(form.text)
	if seen == nil {
		t.Fatal("the form does not say what it has seen")
	}
	st.operateStep(st.task, st.step, tasker.ActionRequest{Action: tasker.ResetForRetry, Actor: "bob", Reason: "again"})
	st.work(func(tasker.Assignment) error { return errors.New("charged, but the receipt is lost") })
	r := st.post(st.action("resolve"), "actor=ann", "reason=paid in cash", "seen="+seen[1])
	st.shows(r, http.StatusConflict, "The step has changed since you opened this page", "charged, but the receipt is lost", "paid in cash</textarea>")
	seen = regexp.MustCompile(`name="seen" value="([^"]+)"`).FindStringSubmatch(r.text)
	if r = st.post(st.action("resolve"), "actor=ann", "reason=paid in cash", "seen="+seen[1]); r.status != http.StatusOK {
		t.Errorf("sent again it is answered with %d", r.status)
	}
	if s := st.stepOf("charge"); s.State != tasker.StepResolvedManually {
		t.Errorf("the step is %s", s.State)
	}
}

func TestStaleOwnFormIsRefused(t *testing.T) {
	t.Parallel()
	st := newStuck(t)
	own := "/ui/investigations/" + st.entry.String() + "/own"
	st.shows(st.post(own, "actor=bob"), http.StatusOK, "The investigation is assigned to bob.")
	r := st.post(own, "actor=ann", "had=")
	st.shows(r, http.StatusConflict, "The investigation has been assigned to bob since", `name="had" value="bob"`)
	st.shows(st.post(own, "actor=ann", "had=bob"), http.StatusOK, "The investigation is assigned to ann instead of bob.")
	status, notes, by := tasker.EntryCancelled, "over", "ann"
	st.update(st.entry, tasker.EntryUpdate{Status: &status, Notes: &notes, ResolvedBy: &by, Actor: by})
	st.shows(st.post(own, "actor=bob", "had=ann"), http.StatusConflict, "The investigation has ended")
}
