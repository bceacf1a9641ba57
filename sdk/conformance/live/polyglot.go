package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/loop"
	"tasker.example/tasker/sdk/conformance/program"
)

// polyglotTemplate has steps in three languages: reserve and confirm in Go, charge in Python and
// label in TypeScript. Attempts that are lost with their workers count.
const polyglotTemplate = `namespace: polyglot
name: real
version: 1.0.0
steps:
  - name: reserve
    handler: {callable: reserve}
    retry: {max_attempts: 50, backoff_base_ms: 50, max_backoff_ms: 200}
  - name: charge
    dependencies: [reserve]
    handler: {callable: charge}
    retry: {max_attempts: 50, backoff_base_ms: 50, max_backoff_ms: 200}
  - name: label
    dependencies: [reserve]
    handler: {callable: label}
    retry: {max_attempts: 50, backoff_base_ms: 50, max_backoff_ms: 200}
  - name: confirm
    dependencies: [charge, label]
    handler: {callable: confirm}
    retry: {max_attempts: 50, backoff_base_ms: 50, max_backoff_ms: 200}
`

const (
	polyglotSteps = 4 // of a task
	copies        = 2 // processes of each program

	// frozenTime exceeds the lease: the reports of a frozen worker come too late.
	frozenTime = 4500 * time.Millisecond
	thawedTime = time.Second // until a thawed worker is stopped
)

// polyglot is one run of workers in several languages.
type polyglot struct {
	run

	commands [][]string // by language
	random   *rand.Rand
	effects  *effectFile
	language map[*program.Program]int // index of commands
	leaving  []*program.Program       // replaced; must exit with 0
	thawing  sync.WaitGroup
	faults   map[string]int // by kind
}

// RunPolyglot runs tasks whose steps are in different languages, while workers are killed, stopped
// and frozen. Each of the commands starts the workers of one language. It returns an error if a
// task is not completed, a step is not completed exactly once, a value changed between languages,
// or the database is inconsistent.
func RunPolyglot(ctx context.Context, o Options, commands [][]string) (err error) {
	o.Tasks, o.Kills = cmp.Or(max(o.Tasks, 0), 1000), cmp.Or(max(o.Kills, 0), 60)
	p := &polyglot{
		run: run{Options: o}, commands: commands, random: rand.New(rand.NewPCG(o.Seed, 0)),
		language: map[*program.Program]int{}, faults: map[string]int{},
	}
	defer func() {
		p.thawing.Wait()
		p.workers = append(p.workers, p.leaving...)
		err = errors.Join(err, p.close())
	}()
	o.Log("seed %d", o.Seed)
	if err := p.open(ctx); err != nil {
		return err
	}
	began := time.Now()
	tasks, err := p.submit(ctx, "polyglot", func(i int) any { return orderOf(i) })
	if err != nil {
		return err
	}
	if err := p.disturb(ctx); err != nil {
		return err
	}
	if err := p.await(ctx, tasks); err != nil {
		return fmt.Errorf("%w\nlast output of a worker:\n%s", err, p.workers[0].Tail())
	}
	o.Log("%d tasks of %d steps completed in %.1f s", len(tasks), polyglotSteps, time.Since(began).Seconds())
	p.thawing.Wait()
	if err := p.drain(ctx); err != nil {
		return err
	}
	p.workers, p.leaving = p.leaving, nil // a second SIGTERM would end them without a drain
	if err := p.awaitExit(ctx); err != nil {
		return err
	}
	if err := p.check(ctx, tasks); err != nil {
		return err
	}
	return p.doctor(ctx)
}

// open starts the server and the workers.
func (p *polyglot) open(ctx context.Context) (err error) {
	if err := p.makeDir(polyglotTemplate); err != nil {
		return err
	}
	if p.effects, err = newEffectFile(filepath.Join(p.dir, "effects")); err != nil {
		return err
	}
	if err := p.startServer(ctx); err != nil {
		return err
	}
	for range copies {
		for language := range p.commands {
			if err := p.start(language); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *polyglot) start(language int) error {
	env := []string{"TASKER_URL=" + p.url, "CONFORMANCE_EFFECTS=" + p.effects.path}
	w, err := program.Start(p.commands[language], "", env, func() {})
	if err != nil {
		return fmt.Errorf("start a worker: %w", err)
	}
	p.workers = append(p.workers, w)
	p.language[w] = language
	return nil
}

// disturb replaces workers at random while the tasks run. The progress of the tasks sets the times,
// so that each fault meets workers with work.
func (p *polyglot) disturb(ctx context.Context) error {
	total := float64(polyglotSteps * p.Tasks)
	for i := range p.Kills {
		progress := 0.9 * total * (float64(i) + p.random.Float64()) / float64(p.Kills)
		var busy []*program.Program
		err := p.poll(ctx, runTime, fmt.Sprintf("fault %d of %d", i+1, p.Kills), func() (bool, error) {
			if i := slices.IndexFunc(p.workers, exited); i >= 0 {
				return false, fmt.Errorf("a worker stopped unexpectedly:\n%s", p.workers[i].Tail())
			}
			if err := p.effects.read(); err != nil {
				return false, err
			}
			busy = p.started()
			return float64(len(p.effects.list)) >= progress && len(busy) > 0, nil
		})
		if err != nil {
			return err
		}
		if err := p.replace(ctx, busy[p.random.IntN(len(busy))], i); err != nil {
			return err
		}
	}
	return nil
}

// started returns the workers that have executed a handler.
func (p *polyglot) started() (list []*program.Program) {
	for _, w := range p.workers {
		if p.effects.pids[w.PID()] {
			list = append(list, w)
		}
	}
	return list
}

// replace kills, stops or freezes a worker, and starts another one.
func (p *polyglot) replace(ctx context.Context, w *program.Program, number int) error {
	p.workers = slices.DeleteFunc(p.workers, func(x *program.Program) bool { return x == w })
	switch number % 6 {
	case 2:
		p.faults["SIGTERM"]++
		w.Signal(syscall.SIGTERM)
		p.leaving = append(p.leaving, w)
	case 4:
		p.faults["frozen beyond its lease"]++
		w.Signal(syscall.SIGSTOP)
		p.leaving = append(p.leaving, w)
		p.thawing.Go(func() { thaw(ctx, w) })
	default:
		p.faults["SIGKILL"]++
		w.Kill()
	}
	return p.start(p.language[w])
}

// thaw lets a frozen worker report under the leases that it has lost, then stops it.
func thaw(ctx context.Context, w *program.Program) {
	loop.Sleep(ctx, frozenTime)
	w.Signal(syscall.SIGCONT)
	loop.Sleep(ctx, thawedTime)
	w.Signal(syscall.SIGTERM)
}

// check checks the tasks and prints what happened.
func (p *polyglot) check(ctx context.Context, tasks []tasker.Task) error {
	if err := p.effects.read(); err != nil {
		return err
	}
	attempts := 0
	for i, t := range tasks {
		t, err := p.task(ctx, t)
		if err != nil {
			return err
		}
		if t.Mark != "" || len(t.Steps) != polyglotSteps {
			return fmt.Errorf("the task %s has an investigation or not %d steps", t.UUID, polyglotSteps)
		}
		for _, step := range t.Steps {
			history, err := p.history(ctx, step)
			if err != nil {
				return err
			}
			if err := checkStep(i, step, history, p.effects.list); err != nil {
				return fmt.Errorf("step %s of task %s %w", step.Name, t.UUID, err)
			}
			attempts += step.Attempts
		}
	}
	p.Log("faults: %v", p.faults)
	p.Log("%s", p.effects.summary())
	p.Log("%d steps were completed exactly once, in %d attempts", polyglotSteps*len(tasks), attempts)
	return nil
}
