package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tasker.example/tasker"
)

// A graph is a shape of tasks for any number of steps.
type graph struct {
	name    string
	parents func(i int) []int // of step i; step 0 has none
}

var graphs = []graph{
	{"chain", func(i int) []int { return []int{i - 1} }},
	{"fan-out", func(int) []int { return []int{0} }},
	{"ladder of diamonds", func(i int) []int { // 0 → 1, 2 → 3 → 4, 5 → 6 …
		if i%3 == 0 {
			return []int{i - 2, i - 1}
		}
		return []int{i - i%3}
	}},
}

// The permanently failing steps of a task.
const (
	noneFails = "none fails"
	oneFails  = "one fails"
	allFail   = "all fail"
)

func stepName(i int) string { return fmt.Sprintf("s%04d", i) }

func (g graph) template(steps int) tasker.Template {
	t := tasker.Template{
		Namespace: space, Name: fmt.Sprintf("%s-%d", strings.ReplaceAll(g.name, " ", "-"), steps), Version: "1.0.0",
		Steps: make([]tasker.StepTemplate, steps),
	}
	for i := range t.Steps {
		t.Steps[i] = tasker.StepTemplate{
			Name: stepName(i), Type: tasker.StandardStep, Handler: tasker.Handler{Callable: "work"}, Retry: tasker.DefaultRetry(),
		}
		if i > 0 {
			for _, p := range g.parents(i) {
				t.Steps[i].Dependencies = append(t.Steps[i].Dependencies, stepName(p))
			}
		}
	}
	return t
}

// growingTasks drains the same number of steps in tasks of growing size.
func (b *bench) growingTasks(ctx context.Context) error {
	for range b.Runs {
		for _, g := range graphs {
			if err := b.growGraph(ctx, g); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bench) growGraph(ctx context.Context, g graph) error {
	for _, n := range b.growth.Steps {
		for _, fail := range []string{noneFails, oneFails, allFail} {
			if err := b.growTask(ctx, g, n, b.growth.Steps[0], fail); err != nil {
				return fmt.Errorf("%s of %d steps, %s: %w", g.name, n, fail, err)
			}
		}
	}
	return nil
}

func (b *bench) growTask(ctx context.Context, g graph, n, smallest int, fail string) error {
	if err := b.reset(ctx); err != nil {
		return err
	}
	t := g.template(n)
	if _, _, err := b.engine.RegisterTemplate(ctx, t, ""); err != nil {
		return err
	}
	tasks := max(b.growth.TotalSteps/n, 1)
	what := g.name + ", " + fail
	start := time.Now()
	created, err := b.engine.CreateTasks(ctx, slices.Repeat([]tasker.NewTask{{Namespace: t.Namespace, Name: t.Name}}, tasks))
	if err != nil {
		return err
	}
	if fail == noneFails {
		b.perStep(g.name+": create", n, smallest, tasks*n, time.Since(start))
	}
	d, err := b.newDirect(ctx, space, "work")
	if err != nil {
		return err
	}
	d.fails = func(a tasker.Assignment) bool {
		return fail == allFail || fail == oneFails && a.Name == stepName(n-1)
	}
	if err := d.drain(ctx); err != nil {
		return err
	}
	b.perStep(what+": claim", n, smallest, d.steps, d.claiming)
	b.perStep(what+": report", n, smallest, d.steps, d.reporting)
	if fail != noneFails {
		if err := b.oneEntryEach(ctx, tasks); err != nil {
			return err
		}
		start = time.Now()
		if err := b.snapshot(ctx, created[0].TaskUUID); err != nil {
			return err
		}
		b.perStep(what+": snapshot", n, smallest, n, time.Since(start))
	}
	return nil
}

// snapshot builds the snapshot of a task and discards it.
func (b *bench) snapshot(ctx context.Context, task tasker.ID) error {
	var bytes int
	return b.db.Pool().QueryRow(ctx, `SELECT octet_length(tasker.task_snapshot($1, 'error', now(), 'bench', now())::text)`, task).Scan(&bytes)
}

// oneEntryEach checks that each task has one open investigation.
func (b *bench) oneEntryEach(ctx context.Context, tasks int) error {
	var entries, distinct int
	err := b.db.Pool().QueryRow(ctx, `SELECT count(*), count(DISTINCT task_uuid) FROM tasker.tasks_dlq WHERE resolution_status = 'pending'`).Scan(&entries, &distinct)
	if err == nil && (entries != tasks || distinct != tasks) {
		err = fmt.Errorf("%d open investigations of %d tasks, want one of each of %d", entries, distinct, tasks)
	}
	return err
}

// A direct is a worker that calls the engine without the SDK, to measure only the engine and the
// database.
type direct struct {
	*bench
	id        tasker.ID
	fails     func(tasker.Assignment) bool // selects permanently failing steps; optional
	result    json.RawMessage
	steps     int // reported so far
	claiming  time.Duration
	reporting time.Duration
}

const directBatch = 100

func (b *bench) newDirect(ctx context.Context, namespace, handler string) (*direct, error) {
	r, err := b.engine.RegisterWorker(ctx, tasker.WorkerSpec{
		Name: "bench", Namespaces: []string{namespace}, Handlers: []string{handler}, MaxConcurrency: directBatch,
	})
	return &direct{bench: b, id: r.WorkerUUID, result: json.RawMessage(`1`)}, err
}

// drain claims and reports until nothing is enqueued.
func (d *direct) drain(ctx context.Context) error {
	for {
		start := time.Now()
		list, err := d.engine.Claim(ctx, d.id, directBatch, 0)
		if err != nil || len(list) == 0 {
			return err
		}
		d.claiming += time.Since(start)
		outcomes := make([]tasker.Outcome, len(list))
		for i, a := range list {
			outcomes[i] = tasker.Outcome{Lease: a.Lease(), Success: true, Result: d.result}
			if d.fails != nil && d.fails(a) {
				outcomes[i] = tasker.Outcome{Lease: a.Lease(), Failure: &tasker.Failure{Message: "gateway answered 503", Type: "gateway"}}
			}
		}
		start = time.Now()
		receipt, err := d.engine.Report(ctx, d.id, outcomes, 0)
		if err != nil {
			return err
		}
		d.reporting += time.Since(start)
		d.steps += len(receipt.Accepted)
		if len(receipt.Accepted) != len(outcomes) {
			return fmt.Errorf("%d of %d outcomes were accepted: %v", len(receipt.Accepted), len(outcomes), receipt.Rejected)
		}
	}
}

// growingPayloads drains tasks of two steps, in which the second receives the result of the first,
// with growing results.
func (b *bench) growingPayloads(ctx context.Context) error {
	if _, _, err := b.engine.RegisterTemplate(ctx, graphs[0].template(2), ""); err != nil {
		return err
	}
	for range b.Runs {
		for _, size := range b.growth.Payloads {
			if err := b.growPayload(ctx, size, b.growth.Payloads[0]); err != nil {
				return fmt.Errorf("results of %d bytes: %w", size, err)
			}
		}
	}
	return nil
}

func (b *bench) growPayload(ctx context.Context, size, smallest int) error {
	if err := b.reset(ctx); err != nil {
		return err
	}
	d, err := b.newDirect(ctx, space, "work")
	if err != nil {
		return err
	}
	d.result = payloadOf(size)
	const tasks = 20
	for range tasks { // one at a time, because claims are limited in bytes
		if _, err := b.engine.CreateTasks(ctx, []tasker.NewTask{{Namespace: space, Name: graphs[0].template(2).Name}}); err != nil {
			return err
		}
		if err := d.drain(ctx); err != nil {
			return err
		}
	}
	if d.steps != 2*tasks {
		return fmt.Errorf("%d steps of %d were executed", d.steps, 2*tasks)
	}
	for what, took := range map[string]time.Duration{"claim": d.claiming, "report": d.reporting} {
		name := func(n int) string { return fmt.Sprintf("%s, results of %d bytes", what, n) }
		b.note(figure{name: name(size), unit: "ms/step", baseline: grown(name, size, smallest)}, took.Seconds()*1000/float64(d.steps))
	}
	return nil
}

// payloadOf returns a document of about size bytes that does not compress well.
func payloadOf(size int) json.RawMessage {
	const piece = 32
	var b strings.Builder
	b.WriteString(`["`)
	for i := 0; b.Len() < size-2*piece; i++ {
		fmt.Fprintf(&b, "%032x", uint64(i)*0x9e3779b97f4a7c15) // digits without repetition
	}
	b.WriteString(`"]`)
	doc := b.String()
	if len(doc) > 200_000 { // strings have a smaller limit
		doc = `["` + strings.Join(split(doc[2:len(doc)-2], 100_000), `","`) + `"]`
	}
	return json.RawMessage(doc)
}

func split(s string, n int) []string {
	var parts []string
	for len(s) > n {
		parts, s = append(parts, s[:n]), s[n:]
	}
	return append(parts, s)
}

// mapSizes lists the numbers of items of the measured map steps. For each size there are enough
// tasks to have as many items in total as the largest size.
var mapSizes = []int{10, 100, 1_000, 10_000}

// Sources of the lists: the context of the task, and the result of the step before.
const (
	listInContext = "list in the context"
	listInResult  = "list in a result"
)

// maps measures the cost of an item compared with a step, and the evidence of a task with three
// failed items.
func (b *bench) maps(ctx context.Context) error {
	if err := b.registerMaps(ctx); err != nil {
		return err
	}
	for range b.Runs {
		items := b.items()
		if err := b.claimedAndReported(ctx, plainStep, work{single.name, items, items, nil}); err != nil {
			return err
		}
		for i := 0; i == 0 || i < len(mapSizes) && mapSizes[i-1] < items; i++ {
			if err := b.mapsOf(ctx, min(mapSizes[i], items), items); err != nil {
				return err
			}
		}
		if err := b.mapEvidence(ctx, items); err != nil {
			return err
		}
	}
	return nil
}

// mapsOf measures a number of items in tasks of n items.
func (b *bench) mapsOf(ctx context.Context, n, items int) error {
	for _, list := range []string{listInContext, listInResult} {
		if err := b.claimedAndReported(ctx, fmt.Sprintf("item of %d, %s", n, list), work{list, items / n, items, mapOf(n)}); err != nil {
			return fmt.Errorf("%d items, %s: %w", n, list, err)
		}
	}
	return nil
}

const plainStep = "one-step task"

// items returns the number of items per size.
func (b *bench) items() int { return min(b.Tasks, mapSizes[len(mapSizes)-1]) }

func templateOf(list string) string { return strings.ReplaceAll(list, " ", "-") }

func (b *bench) registerMaps(ctx context.Context) error {
	step := func(name, callable string, dependencies ...string) tasker.StepTemplate {
		return tasker.StepTemplate{Name: name, Type: tasker.StandardStep, Handler: tasker.Handler{Callable: callable}, Dependencies: dependencies, Retry: tasker.DefaultRetry()}
	}
	each := step("each", "work")
	each.Type, each.Over = tasker.MapStep, "context.list"
	after := step("each", "work", "split")
	after.Type, after.Over = tasker.MapStep, "results.split"
	for list, steps := range map[string][]tasker.StepTemplate{listInContext: {each}, listInResult: {step("split", "split"), after}} {
		if _, _, err := b.engine.RegisterTemplate(ctx, tasker.Template{Namespace: space, Name: templateOf(list), Version: "1.0.0", Steps: steps}, ""); err != nil {
			return err
		}
	}
	return nil
}

// mapOf returns a list of n elements.
func mapOf(n int) json.RawMessage {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`"order %d of the customer"`, i)
	}
	return json.RawMessage("[" + strings.Join(list, ",") + "]")
}

// work describes tasks with a list that result in a number of steps of the handler work.
type work struct {
	kind         string
	tasks, steps int
	list         json.RawMessage
}

// claimedAndReported creates tasks and measures a claim and a report per step: time, and the CPU
// time of PostgreSQL and of this process, which is more reliable on a busy machine. The creation of
// tasks and items is not measured.
func (b *bench) claimedAndReported(ctx context.Context, name string, w work) error {
	if _, err := b.ready(ctx, w); err != nil {
		return err
	}
	d, err := b.newDirect(ctx, space, "work")
	if err != nil {
		return err
	}
	before, err := b.backends(ctx)
	if err != nil {
		return err
	}
	cpu := cpuTime() + serverTime(before)
	if err := d.drain(ctx); err != nil {
		return err
	}
	if d.steps != w.steps {
		return fmt.Errorf("%d steps were reported, want %d", d.steps, w.steps)
	}
	after, err := b.backends(ctx)
	if err != nil {
		return err
	}
	cpu = cpuTime() + serverTime(after) - cpu
	for what, took := range map[string]time.Duration{"claim and report": d.claiming + d.reporting, "CPU": cpu} {
		f := figure{name: name + ", " + what, unit: "µs"}
		if name != plainStep {
			f.baseline = plainStep + ", " + what
		}
		b.note(f, float64(took.Microseconds())/float64(w.steps))
	}
	return nil
}

// ready creates tasks and returns them when their steps are enqueued.
func (b *bench) ready(ctx context.Context, w work) ([]tasker.ID, error) {
	if err := b.reset(ctx); err != nil {
		return nil, err
	}
	r := tasker.NewTask{Namespace: space, Name: templateOf(w.kind)}
	if w.kind == listInContext {
		r.Context = json.RawMessage(`{"list": ` + string(w.list) + `}`)
	}
	var ids []tasker.ID
	for n := w.tasks; n > 0; n -= min(n, bulk) {
		created, err := b.engine.CreateTasks(ctx, slices.Repeat([]tasker.NewTask{r}, min(n, bulk)))
		if err != nil {
			return nil, err
		}
		for _, c := range created {
			ids = append(ids, c.TaskUUID)
		}
	}
	if w.kind == listInResult {
		d, err := b.newDirect(ctx, space, "split")
		if err != nil {
			return nil, err
		}
		d.result = w.list
		if err := d.drain(ctx); err != nil {
			return nil, err
		}
	}
	for until := time.Now().Add(drainTimeout); ; {
		var enqueued int
		if err := b.db.Pool().QueryRow(ctx, `SELECT count(*) FROM tasker.ready_steps`).Scan(&enqueued); err != nil {
			return nil, err
		}
		if enqueued == w.steps {
			break
		}
		if time.Now().After(until) {
			return nil, errors.New("the items were not made in ten minutes")
		}
		if err := rest(ctx, 20*time.Millisecond); err != nil {
			return nil, err
		}
	}
	_, err := b.db.Pool().Exec(ctx, `ANALYZE tasker.workflow_steps, tasker.ready_steps, tasker.tasks`)
	return ids, err
}

// mapEvidence measures the snapshot of a task with three failed items and otherwise complete ones.
func (b *bench) mapEvidence(ctx context.Context, items int) error {
	tasks, err := b.ready(ctx, work{listInContext, 1, items, mapOf(items)})
	if err != nil {
		return err
	}
	d, err := b.newDirect(ctx, space, "work")
	if err != nil {
		return err
	}
	d.fails = func(a tasker.Assignment) bool { return *a.Index%(items/3+1) == 0 }
	if err := d.drain(ctx); err != nil {
		return err
	}
	start := time.Now()
	if err := b.snapshot(ctx, tasks[0]); err != nil {
		return err
	}
	b.note(figure{name: fmt.Sprintf("snapshot of a task with %d items, 3 failed", items), unit: "ms"}, float64(time.Since(start).Microseconds())/1000)
	return nil
}
