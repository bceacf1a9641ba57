package web

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"tasker.example/tasker"
)

// How much of a history a page shows.
const (
	shownMoves    = 100 // of a task
	openMoves     = 8   // of them at once
	readMoves     = 400 // of a step
	shownAttempts = 5
	shownKin      = 5
	shownError    = 200       // characters, in a list
	shownDoc      = 256 << 10 // bytes of a document; who wants a larger one asks the API
)

func (s *server) investigationRoutes() []route {
	return []route{{http.MethodGet, "/investigations/{id}", s.investigation}}
}

func entryPath(id tasker.ID) string { return Root + "/investigations/" + id.String() }

func taskPath(id tasker.ID) string { return Root + "/tasks/" + id.String() }

// investigationPage is one investigation: the evidence, what has become of it, and
// what can be done.
type investigationPage struct {
	Entry        tasker.Entry
	Task         tasker.Task
	Cause        tasker.Cause
	Other        bool // the step that has failed now is not the one the investigation was opened for
	Story        []string
	Assignee     string
	Open         bool
	Graph        graph
	Steps        []stepRow
	Verbs        []stepLink // of the step that has failed now, or else the one the investigation was opened for
	Stuck        string     // why nothing can be done to its steps
	Failed       *tasker.Step
	Attempts     []attempt // newest first
	Earlier      []attempt
	Compared     comparison
	Kin          tasker.Kin // other investigations of the same case
	Moves        []move     // newest first
	EarlierMoves []move
	MoreMoves    int                  // all that are shown, when there are more of them
	History      []tasker.EntryChange // newest first
	Thresholds   json.RawMessage
	Template     json.RawMessage
	Snapshot     json.RawMessage
	TooLarge     int    // KiB of a snapshot that is not shown
	Hidden       string // why the evidence is not complete
	Incomplete   string // why it has only the facts
}

// A stepRow is a step as it is now, with what can be done to it.
type stepRow struct {
	tasker.Step
	Failure string
	Links   []stepLink
}

// Waits says what the step waits for, if it has not ended.
func (r stepRow) Waits() string {
	switch s := r.Step; {
	case s.State == tasker.StepPending && !s.DependenciesSatisfied:
		return fmt.Sprintf("waits for %d of %d steps before it", s.TotalParents-s.CompletedParents, s.TotalParents)
	case s.State == tasker.StepPending && s.Type == tasker.ExternalStep:
		return "waits for an answer from outside"
	case s.State == tasker.StepEnqueued:
		return "waits for a worker with handler " + s.Handler
	case s.State == tasker.StepInProgress && s.WorkerUUID != nil:
		return "in the hands of worker " + short(*s.WorkerUUID)
	default:
		return ""
	}
}

// A stepLink leads to an action on a step.
type stepLink struct{ Name, Href, Key, Does string }

func (s *server) investigation(x *exchange) (*view, error) {
	id, err := x.id("id")
	if err != nil {
		return nil, err
	}
	p, err := s.investigationOf(x.Context(), id)
	if err != nil {
		return nil, err
	}
	return &view{
		page: "investigation", title: p.Task.Namespace + "/" + p.Task.Name + ": " + p.Cause.Label, nav: "Queue", live: true, body: p,
	}, nil
}

// investigationOf reads all that the page shows.
func (s *server) investigationOf(ctx context.Context, id tasker.ID) (*investigationPage, error) {
	e, err := s.DB.Entry(ctx, id)
	if err != nil {
		return nil, err
	}
	task, err := s.DB.Task(ctx, e.TaskUUID)
	if err != nil {
		return nil, err
	}
	steps, err := s.DB.Steps(ctx, e.TaskUUID)
	if err != nil {
		return nil, err
	}
	if err := s.DB.HideErrors(ctx, steps); err != nil {
		return nil, err
	}
	then := readSnapshot(e.Snapshot)
	failed := inNeed(e)
	p := &investigationPage{
		Entry: e, Task: task, Cause: tasker.CauseOf(e.Reason, e.DetailCode), Open: e.ResolutionStatus == tasker.EntryPending,
		Other: failed != nil && (e.StepUUID == nil || *e.StepUUID != *failed),
		Story: story(evidence{entry: e, task: task, then: then, steps: steps}), Assignee: assigneeOf(e.Metadata),
		Graph:    drawGraph(steps, failed, func(st tasker.Step) string { return taskPath(task.UUID) + "#step-" + st.UUID.String() }),
		Compared: compare(then, task, steps), Thresholds: then.Thresholds, Template: then.Template, Hidden: then.RedactionFailed,
		Incomplete: then.SnapshotFailed,
	}
	p.Snapshot = e.Snapshot
	if len(e.Snapshot) > shownDoc {
		p.Snapshot, p.Template, p.TooLarge = nil, nil, len(e.Snapshot)>>10
	}
	if p.Kin, err = s.DB.Kin(ctx, e.UUID, shownKin); err != nil {
		return nil, err
	}
	p.History = slices.Clone(e.History)
	slices.Reverse(p.History)
	moves, more, err := s.DB.NewestTaskTransitions(ctx, task.UUID, shownMoves)
	if err != nil {
		return nil, err
	}
	if more {
		p.MoreMoves = len(moves)
	}
	n := min(len(moves), openMoves)
	p.Moves, p.EarlierMoves = movesOf(moves)[:n], movesOf(moves)[n:]
	if err := s.addSteps(ctx, p, steps); err != nil {
		return nil, err
	}
	return p, s.addAttempts(ctx, p, steps)
}

// inNeed is the step that keeps the task of an open investigation from going on.
func inNeed(e tasker.Entry) *tasker.ID {
	if e.FailedStep == nil {
		return nil
	}
	return &e.FailedStep.UUID
}

// A move is a move of the task, with how long it had stood where it came from.
type move struct {
	tasker.Transition
	Stood string // empty when that is not known, or was no time at all
}

func movesOf(list []tasker.Transition) []move {
	moves := make([]move, len(list))
	for i, t := range list {
		moves[i].Transition = t
		if i+1 < len(list) {
			if d := t.CreatedAt.Sub(list[i+1].CreatedAt); d >= time.Second {
				moves[i].Stood = length(d)
			}
		}
	}
	return moves
}

// addSteps adds the steps as they are now, and the actions that are possible.
func (s *server) addSteps(ctx context.Context, p *investigationPage, steps []tasker.Step) error {
	var err error
	if p.Stuck, err = s.unrepairable(ctx, p.Task); err != nil {
		return err
	}
	about := cmp.Or(inNeed(p.Entry), p.Entry.StepUUID)
	for _, st := range steps {
		row := stepRow{Step: st, Failure: clip(failureOf(st.Error).Message, shownError)}
		if p.Stuck == "" && !s.ReadOnly {
			row.Links = stepLinks(st, &p.Entry.UUID)
		}
		if about != nil && st.UUID == *about {
			p.Failed, p.Verbs = &row.Step, row.Links
		}
		p.Steps = append(p.Steps, row)
	}
	return nil
}

// stepLinks are the actions that the state of a step allows; back is the
// investigation to return to, if it is not the task.
func stepLinks(st tasker.Step, back *tasker.ID) []stepLink {
	var links []stepLink
	query := ""
	if back != nil {
		query = "?entry=" + back.String()
	}
	for _, v := range stepVerbs {
		if v.allowed(st.State) {
			links = append(links, stepLink{
				Name: v.Name, Key: v.Key, Does: v.Does, Href: v.path(st) + query,
			})
		}
	}
	return links
}

// addAttempts adds what the history tells of the step that failed.
func (s *server) addAttempts(ctx context.Context, p *investigationPage, steps []tasker.Step) error {
	if p.Failed == nil {
		return nil
	}
	moves, _, err := s.DB.NewestStepTransitions(ctx, p.Task.UUID, p.Failed.UUID, readMoves)
	if err != nil {
		return err
	}
	list := attemptsOf(moves, p.Entry.At)
	n := min(len(list), shownAttempts)
	p.Attempts, p.Earlier = list[:n], list[n:]
	return nil
}

// An attempt is one go at a step, from the hour a worker took it to its end.
type attempt struct {
	Number  int
	Began   time.Time // zero when no worker took it
	Ended   time.Time // zero while it runs
	Event   string    // that ended it
	State   string    // in which it left the step
	Worker  *tasker.ID
	Failure tasker.StepFailure
	Later   bool // begun after the investigation was opened
}

// Took is how long it ran, as far as the history tells.
func (a attempt) Took() string {
	if a.Began.IsZero() || a.Ended.IsZero() {
		return ""
	}
	switch d := a.Ended.Sub(a.Began); {
	case d < time.Millisecond:
		return "less than 1 ms"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	default:
		return length(d)
	}
}

// attemptsOf reads the attempts out of the moves of a step, both newest first.
func attemptsOf(moves []tasker.Transition, opened time.Time) []attempt {
	var list []attempt
	var running *attempt
	for _, m := range slices.Backward(moves) {
		switch {
		case m.To == string(tasker.StepInProgress):
			running = &attempt{Number: numberOf(m), Began: m.CreatedAt, Worker: m.WorkerUUID, State: m.To, Later: m.CreatedAt.After(opened)}
			continue
		case m.To == string(tasker.StepEnqueuedForOrchestration):
			continue // its result is here, and not yet followed up
		case running == nil && m.To != string(tasker.StepError):
			continue
		case running == nil: // no worker took it, or that was too long ago
			running = &attempt{Number: numberOf(m), Worker: m.WorkerUUID, Later: m.CreatedAt.After(opened)}
		}
		running.Ended, running.Event, running.State = m.CreatedAt, m.Event, m.To
		if m.To == string(tasker.StepError) {
			running.Failure = failureOf(m.Detail)
		}
		list = append(list, *running)
		running = nil
	}
	if running != nil {
		list = append(list, *running)
	}
	slices.Reverse(list)
	return list
}

func numberOf(m tasker.Transition) int {
	if m.Attempt == nil {
		return 0
	}
	return *m.Attempt
}

// A comparison is what the evidence says beside how things stand.
type comparison struct {
	Changed, Same []compared
}

// A compared line is one state, then and now.
type compared struct {
	Name      string
	Then, Now string
	Note      string // what the states do not say
}

// compare puts the evidence beside how things stand now.
func compare(then snapshot, task tasker.Task, steps []tasker.Step) comparison {
	var c comparison
	add := func(l compared) {
		if l.Then == l.Now && l.Note == "" {
			c.Same = append(c.Same, l)
		} else {
			c.Changed = append(c.Changed, l)
		}
	}
	if then.State != "" {
		add(compared{Name: "The task", Then: string(then.State), Now: string(task.State)})
	}
	for _, st := range steps {
		was, ok := then.step(st.UUID)
		if !ok {
			continue
		}
		l := compared{Name: st.Name, Then: string(was.State), Now: string(st.State)}
		if was.Attempts != st.Attempts {
			l.Note = count(was.Attempts, "attempt") + " then, " + count(st.Attempts, "") + " now"
		}
		add(l)
	}
	return c
}
