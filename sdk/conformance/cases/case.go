// Package cases contains the conformance cases of worker SDKs. A case starts the conformance
// program of an SDK against a scripted server, causes one fault, and checks how the worker handles
// it. The rules are those of docs/reference/worker-protocol.md.
package cases

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tasker.example/tasker/sdk/conformance/program"
	"tasker.example/tasker/sdk/conformance/scripted"
)

// Page is the document with the rules.
const Page = "docs/reference/worker-protocol.md"

// Sections of [Page] with rules.
const (
	authentication = "Authentication"
	registering    = "Registration"
	claiming       = "Claims"
	leasing        = "Leases"
	beating        = "Heartbeats"
	draining       = "Drain"
	reporting      = "Reports"
	concluding     = "Results and failures"
	reading        = "Inputs"
	saving         = "Checkpoints"
	failing        = "Errors and proxies"
)

// Case checks one rule of the worker protocol.
type Case struct {
	Name    string
	Section string // heading of the rule in [Page]
	Rule    string // one sentence
	Run     func(t *T)
}

// Anchor returns the place of the rule, as page and fragment.
func (c Case) Anchor() string {
	return Page + "#" + strings.ReplaceAll(strings.ToLower(c.Section), " ", "-")
}

// sections are the sections with rules, in the order of the page.
var sections = []string{
	authentication, registering, claiming, leasing, beating, draining, reporting, concluding, reading, saving, failing,
}

// All returns all cases, in the order of the sections of the page.
func All() []Case {
	all := slices.Concat(registration(), keys(), claims(), leases(), heartbeats(), drains(), reports(), rejections(), proxies(),
		outages(), inputs(), checkpoints(), outcomes(), typed(), compatibility())
	slices.SortStableFunc(all, func(a, b Case) int {
		return cmp.Compare(slices.Index(sections, a.Section), slices.Index(sections, b.Section))
	})
	return all
}

// Options configures a run of cases.
type Options struct {
	Command  []string      // starts the conformance program
	Env      []string      // additional environment of the program
	Dir      string        // working directory of the program
	Scale    float64       // multiplies all times; default: 1
	Patience time.Duration // how long a case waits for what must happen; default: 12 seconds
}

// Outcome is the result of a case.
type Outcome struct {
	Case

	Took       time.Duration
	Failure    string // empty if the case passed
	Transcript string // of a failed case
	Stderr     string // last lines of the program of a failed case
}

// T runs one case.
type T struct {
	Server *scripted.Server

	options  Options
	dir      string
	programs []*program.Program
}

// failed ends a case.
type failed struct{ message string }

const (
	patience  = 12 * time.Second // default of [Options].Patience
	startTime = 40 * time.Second // for the start of a program
)

// Times of the scripted server, before they are scaled.
const (
	heartbeat = 300 * time.Millisecond
	lease     = 1000 * time.Millisecond
	runTime   = 250 * time.Millisecond // until a claimed step runs
)

// Execute runs a case.
func Execute(ctx context.Context, c Case, o Options) Outcome {
	o.Scale, o.Patience = cmp.Or(max(o.Scale, 0), 1), cmp.Or(max(o.Patience, 0), patience)
	began := time.Now()
	out := Outcome{Case: c}
	t := &T{options: o}
	if err := t.open(); err != nil {
		out.Failure = err.Error()
		return out
	}
	stop := context.AfterFunc(ctx, t.killAll)
	defer stop()
	out.Failure = t.run(c)
	t.killAll()
	if out.Failure != "" {
		out.Transcript, out.Stderr = t.Server.Transcript(), t.stderr()
	}
	out.Took = time.Since(began)
	t.close()
	return out
}

func (t *T) open() (err error) {
	if t.dir, err = os.MkdirTemp("", "conformance-"); err != nil {
		return fmt.Errorf("create a directory: %w", err)
	}
	t.Server, err = scripted.New(t.Scaled(heartbeat), t.Scaled(lease))
	return err
}

func (t *T) close() {
	_ = t.Server.Close()
	_ = os.RemoveAll(t.dir) // a temporary directory
}

// run runs the case and returns why it failed.
func (t *T) run(c Case) (failure string) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failed:
			failure = strings.Join(append([]string{r.message}, t.Server.Violations()...), "; ")
		default:
			panic(r)
		}
	}()
	c.Run(t)
	t.checkRunning()
	if found := t.Server.Violations(); len(found) > 0 {
		t.Fatalf("%s", found[0])
	}
	return ""
}

// Fatalf ends the case as failed. The message describes what the worker did, and what it should do.
func (t *T) Fatalf(format string, args ...any) { panic(failed{fmt.Sprintf(format, args...)}) }

// Check fails the case with the message unless ok.
func (t *T) Check(ok bool, format string, args ...any) {
	if !ok {
		t.Fatalf(format, args...)
	}
}

// Scaled returns a duration of a case in the time of this run.
func (t *T) Scaled(d time.Duration) time.Duration { return time.Duration(float64(d) * t.options.Scale) }

// Await waits until so returns true. The description completes "waited in vain for …".
func (t *T) Await(description string, so func() bool) {
	t.AwaitWithin(t.options.Patience, description, so)
}

// AwaitWithin is like Await with a limit.
func (t *T) AwaitWithin(d time.Duration, description string, so func() bool) {
	d = t.Scaled(d)
	if !t.Server.Wait(d, func() bool { return so() || t.ended() != nil }) {
		t.Fatalf("waited %s in vain for %s", d, description)
	}
	t.checkRunning()
}

// ended returns a program that has ended although the case does not expect it, or nil.
func (t *T) ended() *program.Program {
	for _, p := range t.programs {
		if exited, _ := p.Exited(); exited && !p.Stopping {
			return p
		}
	}
	return nil
}

func (t *T) checkRunning() {
	if p := t.ended(); p != nil {
		_, code := p.Exited()
		t.Fatalf("the program ended by itself with status %d", code)
	}
}

// Observe waits for d, while the server records what the worker does.
func (t *T) Observe(d time.Duration) {
	t.Server.Wait(t.Scaled(d), func() bool { return false })
}

// Start starts the program and waits for its registration.
func (t *T) Start(env ...string) *program.Program {
	p := t.Launch(env...)
	t.Await("the registration of the worker", func() bool { return len(t.Server.Workers()) > 0 })
	return p
}

// Launch starts the program and waits for its first request, or for its end.
func (t *T) Launch(env ...string) *program.Program {
	env = slices.Concat(t.options.Env, []string{"TASKER_URL=" + t.Server.URL()}, env)
	p, err := program.Start(t.options.Command, t.options.Dir, env, t.Server.Notify)
	if err != nil {
		t.Fatalf("cannot start the program: %v", err)
	}
	t.programs = append(t.programs, p)
	begun := t.Server.Wait(t.Scaled(startTime), func() bool {
		exited, _ := p.Exited()
		return exited || len(t.Server.Requests()) > 0 || t.Server.Refused() > 0
	})
	t.Check(begun, "the program sent no request in %s after its start", t.Scaled(startTime))
	return p
}

// KeyFile writes an API key to the key file of the case and returns its path.
func (t *T) KeyFile(key string) string {
	path := filepath.Join(t.dir, "key")
	next := path + ".next"
	err := errors.Join(os.WriteFile(next, []byte(key+"\n"), 0o600), os.Rename(next, path))
	if err != nil {
		t.Fatalf("write the key file: %v", err)
	}
	return path
}

// AwaitExit waits until the program has ended, and returns its status.
func (t *T) AwaitExit(p *program.Program, d time.Duration, after string) int {
	p.Stopping = true
	t.AwaitWithin(d, "the end of the program after "+after, func() bool {
		exited, _ := p.Exited()
		return exited
	})
	_, code := p.Exited()
	return code
}

// Enqueue adds a step with a handler and the context of its task.
func (t *T) Enqueue(handler string, taskContext any) *scripted.Step {
	return t.Server.Enqueue(scripted.Step{Handler: handler, Context: taskContext})
}

// AwaitRun waits until the handler of a step runs. The server cannot see that, so it waits for the
// claim and a little longer.
func (t *T) AwaitRun(step *scripted.Step) {
	t.Await("a claim of the step", func() bool { return len(step.Grants()) > 0 })
	t.Observe(runTime)
}

// Success waits for the success of a step and returns the result.
func (t *T) Success(step *scripted.Step) any {
	o := t.outcome(step)
	if !o.Success {
		t.Fatalf("the step %s failed with %s; it must succeed", step.Name, describe(o))
	}
	return decode(t, o.Result.Result)
}

// Failure waits for the failure of a step.
func (t *T) Failure(step *scripted.Step) *scripted.Outcome {
	o := t.outcome(step)
	if o.Success {
		t.Fatalf("the step %s succeeded with %s; it must fail", step.Name, o.Result.Result)
	}
	return o
}

// PermanentFailure waits for a failure that is not retried and whose message contains the text.
func (t *T) PermanentFailure(step *scripted.Step, text string) {
	o := t.Failure(step)
	if o.Error.Retryable == nil || *o.Error.Retryable {
		t.Fatalf("the failure is retryable: %s; it must have retryable: false", describe(o))
	}
	if !strings.Contains(o.Error.Message, text) {
		t.Fatalf("the message of the failure is %q; it must contain %q", o.Error.Message, text)
	}
}

func (t *T) outcome(step *scripted.Step) *scripted.Outcome {
	t.Await("an outcome of the step "+step.Name, func() bool { return step.Accepted() != nil && step.Done() })
	return step.Accepted()
}

func (t *T) killAll() {
	for _, p := range t.programs {
		p.Kill()
	}
}

func (t *T) stderr() string {
	var parts []string
	for _, p := range t.programs {
		parts = append(parts, p.Tail())
	}
	return strings.Join(parts, "\n")
}
