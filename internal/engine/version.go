package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/core"
	"tasker.example/tasker/internal/payload"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/templatefile"
)

// maxChangedNames limits how many step names of one kind the history of a task contains.
const maxChangedNames = 20

// ChangeVersion moves a task to another version of its template in one transaction. It returns the
// effects on the task's steps. If the task already has the version, nothing changes. If the task
// cannot be moved, it returns a Conflict, or, in a dry run, the refusals.
func (e *Engine) ChangeVersion(ctx context.Context, task tasker.ID, r tasker.VersionRequest) (tasker.VersionChange, error) {
	if err := checkVersionRequest(r.To, r.Actor, r.Reason, r.DryRun); err != nil {
		return tasker.VersionChange{}, err
	}
	t, err := e.db.Task(ctx, task) // this also checks that the caller may see it
	if err != nil {
		return tasker.VersionChange{}, err
	}
	g, err := e.targetVersion(ctx, tasker.TemplateVersion{Namespace: t.Namespace, Name: t.Name, Version: r.To})
	if err != nil {
		return tasker.VersionChange{}, err
	}
	change, err := e.changeVersion(ctx, task, g, r)
	if err == nil && len(change.Refusals) > 0 && !r.DryRun {
		err = tasker.Errorf(tasker.Conflict, "task %s cannot be moved from version %s "+
			"to %s: %s", task, change.From, change.To, change.Refusals[0].Message)
	}
	return change, err
}

func checkVersionRequest(to, actor, reason string, dryRun bool) error {
	var wrong faults
	wrong.checkText("to_version", to, 64, true)
	wrong.checkText("actor", actor, 255, !dryRun)
	wrong.checkText("reason", reason, 2000, !dryRun)
	return wrong.toError("the version cannot be changed")
}

// targetVersion returns the graph of a template version, or a Conflict if the version is retired.
func (e *Engine) targetVersion(ctx context.Context, v tasker.TemplateVersion) (*graph, error) {
	t, err := e.db.Template(ctx, v.Namespace, v.Name, v.Version)
	if err != nil {
		return nil, err
	}
	if t.Retired != nil {
		return nil, newRetiredError(t, v.Version)
	}
	return e.loadGraph(t)
}

// changeVersion is ChangeVersion for a validated request. It returns refusals in the change, not as
// an error.
func (e *Engine) changeVersion(ctx context.Context, task tasker.ID, to *graph, r tasker.VersionRequest) (change tasker.VersionChange, err error) {
	var namespaces []string
	err = e.db.InTx(ctx, func(tx *postgres.Tx) error {
		namespaces = nil
		t, steps, err := tx.VersionedTask(ctx, task, !r.DryRun)
		if err != nil {
			return err
		}
		from, err := e.loadGraphByID(ctx, tx, t.TemplateUUID)
		if err != nil {
			return err
		}
		if r.From != "" && from.stored.Version != r.From {
			return tasker.Errorf(tasker.Conflict, "task %s has version %s, not %s", task, from.stored.Version, r.From)
		}
		m := migration{task: t, steps: steps, from: from, to: to}
		if change, err = m.compare(ctx); err != nil || r.DryRun || len(change.Refusals) > 0 || change.From == change.To {
			return err
		}
		namespaces, err = m.applyChange(ctx, tx, &change, postgres.Operator{Actor: r.Actor, Reason: r.Reason})
		return err
	})
	if err == nil && change.Changed {
		e.notify(namespaces)
		e.decideNow()
	}
	return change, err
}

// migration moves a task from one version of its template to another.
type migration struct {
	task     postgres.VersionedTask
	steps    []postgres.VersionedStep
	from, to *graph
}

// compare returns the effects of the move on the steps, or the refusals.
func (m *migration) compare(ctx context.Context) (tasker.VersionChange, error) {
	change := tasker.VersionChange{TaskUUID: m.task.TaskUUID, From: m.from.stored.Version, To: m.to.stored.Version}
	if m.from.stored.UUID == m.to.stored.UUID {
		return change, nil
	}
	if !slices.Contains(core.TaskMoves.Accepts(m.task.State), core.ChangeVersion) {
		change.Refusals = append(change.Refusals, newVersionRefusal(tasker.RefusedTaskEnded, "the task is %s and cannot be changed", m.task.State))
		return change, nil
	}
	if m.task.WrittenOff {
		change.Refusals = append(change.Refusals, newVersionRefusal(tasker.RefusedWrittenOff, "the task was written off: its investigation ended as permanently_failed"))
		return change, nil
	}
	named := make(map[tasker.ID]string, len(m.steps))
	for _, s := range m.steps {
		named[s.StepUUID] = s.Name
	}
	list := make([]core.VersionStep, len(m.steps))
	for i, s := range m.steps {
		list[i] = core.VersionStep{Name: s.Name, Type: s.Type, State: s.State, Waits: m.isWaiting(s), HasItems: s.HasItems, HasChild: s.HasChild}
		for _, p := range s.Parents {
			list[i].Dependencies = append(list[i].Dependencies, named[p])
		}
	}
	of := core.PlanVersionChange(list, m.from.stored.Steps, m.to.stored.Steps)
	of.TaskUUID, of.From, of.To = change.TaskUUID, change.From, change.To
	switch {
	case m.task.Phase != "":
		of.Refusals = append(of.Refusals, newVersionRefusal(tasker.RefusedCompensating, "the task is being compensated"))
	case m.from.cycle != nil:
		of.Refusals = append(of.Refusals, newVersionRefusal(tasker.RefusedTaskCycle,
			"the steps of the task form a dependency cycle: recreate the task with the new version"))
	case m.to.cycle != nil:
		of.Refusals = append(of.Refusals, newVersionRefusal(tasker.RefusedVersionCycle,
			"the steps of version %s form a dependency cycle", change.To))
	}
	return m.checkContext(ctx, of)
}

func newVersionRefusal(code tasker.VersionRefusalCode, format string, args ...any) tasker.VersionRefusal {
	return tasker.VersionRefusal{Code: code, Message: fmt.Sprintf(format, args...)}
}

// checkContext adds a refusal if the task's context does not match the input schema of the new
// version.
func (m *migration) checkContext(ctx context.Context, change tasker.VersionChange) (tasker.VersionChange, error) {
	decoded, _, err := payload.Decode(m.task.Context, payload.Limits{})
	if err != nil {
		return change, fmt.Errorf("read the context of task %s: %w", m.task.TaskUUID, err)
	}
	err = m.to.input.Check(ctx, templatefile.NewBudget(), decoded)
	if code := tasker.CodeOf(err); err != nil && code != tasker.Invalid && code != tasker.TooLarge {
		return change, err
	}
	if err != nil {
		change.Refusals = append(change.Refusals, newVersionRefusal(tasker.RefusedContext, "context: %s", err))
	}
	return change, nil
}

// isWaiting reports whether a pending step waits for something other than its dependencies.
func (m *migration) isWaiting(s postgres.VersionedStep) bool {
	if s.State != tasker.StepPending || m.task.State == tasker.TaskPending {
		return false
	}
	waitsAtOnce := !tasker.StepTemplate{Type: s.Type}.HasHandler() && !s.Decides && s.ParentsOpen == 0
	return waitsAtOnce || s.Decided || s.HasItems
}

// applyChange moves the task to the new version and continues it. It returns the namespaces with
// new work.
func (m *migration) applyChange(ctx context.Context, tx *postgres.Tx, change *tasker.VersionChange, by postgres.Operator) ([]string, error) {
	next, err := m.rewrite(*change)
	if err != nil {
		return nil, err
	}
	namespaces, err := tx.ChangeVersion(ctx, next, by)
	if err != nil {
		return nil, err
	}
	err = tx.RecordRepairs(ctx, []postgres.Repair{{
		TaskUUID: change.TaskUUID, Event: "version_changed", Action: "task.version_changed", Subject: change.TaskUUID, Actor: by.Actor,
		Notes: fmt.Sprintf("the task was moved from version %s to %s: %s", change.From, change.To, by.Reason),
		Data:  map[string]any{"task_uuid": change.TaskUUID, "from_version": change.From, "to_version": change.To, "reason": by.Reason},
	}})
	if err != nil {
		return nil, err
	}
	change.Changed = true
	if m.task.State == tasker.TaskPending { // if it were settled, the loop that starts it would not find it
		return namespaces, nil
	}
	_, err = tx.SettleTasks(ctx, []tasker.ID{change.TaskUUID}, by)
	return namespaces, err
}

// rewrite returns the task as the new version defines it.
func (m *migration) rewrite(change tasker.VersionChange) (postgres.NewVersion, error) {
	next := postgres.NewVersion{Task: m.task, Template: m.to.stored, Finds: len(m.from.search.names)+len(m.to.search.names) > 0}
	var err error
	if next.Detail, err = encodeChange(change); err != nil {
		return next, err
	}
	fresh, now := m.to.newSteps(false), make(map[string]postgres.VersionedStep, len(m.steps))
	for _, s := range m.steps {
		now[s.Name] = s
		if slices.Contains(change.Removed, s.Name) {
			next.Removed = append(next.Removed, s.StepUUID)
		}
	}
	ids := make(map[tasker.ID]tasker.ID, len(fresh)) // maps ids of a new task to those of existing steps
	for _, s := range fresh {
		ids[s.UUID] = s.UUID
		if is, ok := now[s.Name]; ok {
			ids[s.UUID] = is.StepUUID
		}
	}
	// The old version may have skipped a step that the new one never skips. Its dependents must
	// then be decided by their join rules.
	template := m.to.stored.Steps
	skippable := m.to.findSkippable(func(i int) bool { return now[template[i].Name].State == tasker.StepSkipped })
	states := make(map[tasker.ID]tasker.StepState, len(m.steps))
	for i := range fresh {
		s := &fresh[i]
		s.JoinRule = m.to.joinRule(template[i], i, skippable)
		s.UUID, s.Children = ids[s.UUID], nil
		for n, p := range s.Parents {
			s.Parents[n] = ids[p]
		}
		is, ok := now[s.Name]
		if !ok {
			is.State = tasker.StepPending
			next.Added = append(next.Added, *s)
		}
		states[s.UUID] = is.State
		next.Steps = append(next.Steps, postgres.RewrittenStep{CreatedStep: *s, Rewrite: m.rewriteScope(is, ok, slices.Contains(change.Redefined, s.Name))})
	}
	for _, name := range change.Left { // no step of the new version depends on them
		is := now[name]
		states[is.StepUUID] = is.State
		next.Steps = append(next.Steps, postgres.RewrittenStep{CreatedStep: postgres.CreatedStep{UUID: is.StepUUID, Parents: is.Parents}})
	}
	m.link(next.Steps, states)
	return next, nil
}

// rewriteScope returns which parts of a step to rewrite.
func (m *migration) rewriteScope(s postgres.VersionedStep, exists, redefined bool) postgres.Rewrite {
	switch {
	case !exists, s.State == tasker.StepPending && !m.isWaiting(s):
		return postgres.RewriteAll
	case redefined && (s.State == tasker.StepEnqueued || s.State == tasker.StepError):
		return postgres.RewriteAtRest
	default:
		return postgres.RewriteEdges
	}
}

// link adds the edges between steps and counts the parents that are done.
func (m *migration) link(steps []postgres.RewrittenStep, states map[tasker.ID]tasker.StepState) {
	place := make(map[tasker.ID]int, len(steps))
	for i, s := range steps {
		place[s.UUID] = i
	}
	for i := range steps {
		s := &steps[i]
		s.Parents = slices.DeleteFunc(slices.Clone(s.Parents), func(p tasker.ID) bool { _, has := states[p]; return !has })
		for _, p := range s.Parents {
			parent := &steps[place[p]]
			parent.Children = append(parent.Children, s.UUID)
			if states[p].Done() {
				s.ParentsDone++
			}
		}
	}
}

// encodeChange returns the detail that the history records about the change.
func encodeChange(c tasker.VersionChange) (json.RawMessage, error) {
	detail := map[string]any{"from_version": c.From, "to_version": c.To, "kept": len(c.Kept)}
	for kind, names := range map[string][]string{"redefined": c.Redefined, "added": c.Added, "removed": c.Removed, "left": c.Left} {
		if len(names) > 0 {
			detail[kind], detail[kind+"_steps"] = len(names), names[:min(len(names), maxChangedNames)]
		}
	}
	doc, err := json.Marshal(detail)
	if err != nil {
		return nil, fmt.Errorf("encode version change: %w", err)
	}
	return doc, nil
}

// ChangeVersions moves a batch of open tasks from one template version to another, each in its own
// transaction. It returns where the next batch begins. A batch ends after r.Limit open tasks or ten
// seconds. It is safe to repeat a batch.
func (e *Engine) ChangeVersions(ctx context.Context, r tasker.VersionBatchRequest) (tasker.VersionBatch, error) {
	batch := tasker.VersionBatch{Reasons: map[tasker.VersionRefusalCode]int{}}
	if err := checkVersionBatch(&r); err != nil {
		return batch, err
	}
	begun := e.now()
	from, err := e.db.Template(ctx, r.Template.Namespace, r.Template.Name, r.Template.Version)
	if err != nil {
		return batch, err
	}
	to := r.Template
	to.Version = r.To
	g, err := e.targetVersion(ctx, to)
	if err != nil {
		return batch, err
	}
	part, err := e.db.OpenTasksOf(ctx, from.UUID, r.Before, r.Limit)
	if err != nil {
		return batch, err
	}
	batch.Looked, batch.Next = part.Looked, part.Next
	for i, task := range part.Open {
		change, err := e.changeVersion(ctx, task.UUID, g, tasker.VersionRequest{From: r.Template.Version, To: r.To, DryRun: r.DryRun, Actor: r.Actor, Reason: r.Reason})
		switch code := tasker.CodeOf(err); {
		case ctx.Err() != nil, code == tasker.Unavailable:
			return batch, err
		case code == tasker.NotFound: // removed in the meantime
		case code == tasker.Conflict: // the task's version has changed in the meantime, or the new version was retired
			if _, gone := e.targetVersion(ctx, to); gone != nil {
				return batch, gone
			}
		case err != nil:
			e.log.ErrorContext(ctx, "changing the version of a task failed", "task_uuid", task.UUID, "err", err)
			change.Refusals = []tasker.VersionRefusal{newVersionRefusal(tasker.RefusedByFailure,
				"internal error: see the server log")}
			change.TaskUUID, change.From, change.To = task.UUID, r.Template.Version, r.To
			countChange(&batch, change)
		default:
			countChange(&batch, change)
		}
		if i+1 < len(part.Open) && e.now().Sub(begun) > batchFor {
			batch.Looked, batch.Next = task.Looked, task.UUID
			break
		}
	}
	return batch, nil
}

// checkVersionBatch validates a request and sets the default limit.
func checkVersionBatch(r *tasker.VersionBatchRequest) error {
	if err := checkVersionRequest(r.To, r.Actor, r.Reason, r.DryRun); err != nil {
		return err
	}
	r.Limit = cmp.Or(r.Limit, tasker.MaxVersionBatch)
	switch {
	case r.Limit < 0 || r.Limit > tasker.MaxVersionBatch:
		return tasker.Errorf(tasker.Invalid, "limit: must be from 1 to %d, not %d", tasker.MaxVersionBatch, r.Limit)
	case r.Template.Version == "":
		return tasker.Errorf(tasker.Invalid, "version: is missing")
	case r.Template.Version == r.To:
		return tasker.Errorf(tasker.Invalid, "to_version: the tasks already have version %s", r.To)
	}
	return nil
}

// countChange adds the change of one task to the counts and the sample of a batch.
func countChange(batch *tasker.VersionBatch, c tasker.VersionChange) {
	if len(c.Refusals) == 0 {
		batch.Changed++
		return
	}
	batch.Refused++
	if len(batch.Sample) < tasker.MaxVersionSample {
		batch.Sample = append(batch.Sample, c)
	}
	var seen []tasker.VersionRefusalCode
	for _, r := range c.Refusals {
		if !slices.Contains(seen, r.Code) {
			seen = append(seen, r.Code)
			batch.Reasons[r.Code]++
		}
	}
}
