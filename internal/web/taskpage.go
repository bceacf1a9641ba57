package web

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/lifecycle"
)

// Bounds of what the page of a task shows. All of it is in the API.
const (
	maxContext = 64 << 10
	maxResult  = 8 << 10 // of each step; there may be a thousand
	maxHistory = 2000
)

// A taskPage is one task.
type taskPage struct {
	Task        tasker.Task
	Path        string
	Progress    taskProgress
	Standing    string // one sentence
	Entry       *taskEntry
	CanCancel   bool
	CanOpen     bool   // an investigation
	CanOperate  bool   // on steps
	Stuck       string // why not
	Graph       graph
	Steps       []stepLine
	Axis        axis
	Context     taskDocument
	History     []historyLine
	Pager       pager // of the history
	OlderMoves  string
	Replacement string // the page of the task that this one replaces
}

// A taskEntry is the newest investigation of a task.
type taskEntry struct {
	tasker.Entry
	Path             string
	Open, WrittenOff bool
}

// A taskDocument is JSON of which the page may show the beginning only.
type taskDocument struct {
	Text  string
	Cut   bool
	Size  string
	Whole string // where all of it is
}

// taskDocumentOf shows at most so many bytes of a document.
func taskDocumentOf(doc json.RawMessage, most int, whole string) taskDocument {
	d := taskDocument{Size: count(len(doc), "byte"), Whole: whole}
	if len(doc) <= most {
		if d.Text = pretty(doc); len(d.Text) <= 2*most {
			return d
		}
		doc = json.RawMessage(d.Text) // so deep that it is mostly indentation
	}
	d.Text, d.Cut = strings.ToValidUTF8(string(doc[:most]), ""), true
	return d
}

// A stepLine is a step as the page of its task shows it.
type stepLine struct {
	tasker.Step
	Needs           []stepAnchor // those it depends on
	Waits           int          // how many of them are not done
	Bar             stepBar
	Actions         []stepLink
	Failure         string
	Results, Errors taskDocument
}

// A stepAnchor leads to a step on the same page.
type stepAnchor struct {
	Name, Href string
	Done       bool
}

// A historyLine is one move of a task or of a step.
type historyLine struct {
	tasker.Transition
	Step    *stepAnchor
	Message string // of a failure
	Detail  taskDocument
}

// TransitionKey tells moves of the task from those of its steps, which are counted
// by themselves.
func (l historyLine) TransitionKey() string {
	kind := "move-t"
	if l.StepUUID != nil {
		kind = "move-s"
	}
	return kind + strconv.FormatInt(l.ID, 10)
}

// task shows one task.
func (s *server) task(x *exchange) (*view, error) {
	id, err := x.id("id")
	if err != nil {
		return nil, err
	}
	t, err := s.DB.Task(x.Context(), id)
	if err != nil {
		return nil, err
	}
	steps, err := s.DB.Steps(x.Context(), id)
	if err != nil {
		return nil, err
	}
	history, more, err := s.DB.TaskHistory(x.Context(), id, maxHistory)
	if err != nil {
		return nil, err
	}
	entry, err := s.entryOf(x, id)
	if err != nil {
		return nil, err
	}
	offset, err := x.number("offset", 0, 0, maxHistory)
	if err != nil {
		return nil, err
	}
	page := taskPage{
		Task: t, Path: taskPath(id), Progress: taskProgressOf(t.Counts), Standing: whereabouts(t, steps), Entry: entry,
		CanCancel: cancellable(t), CanOpen: entry == nil || !entry.Open && !entry.WrittenOff,
		Graph: drawGraph(steps, troubled(entry), hrefOfStep), Context: taskDocumentOf(t.Context, maxContext, apiOfTask(t)),
	}
	if page.Stuck, err = s.unrepairable(x.Context(), t); err != nil {
		return nil, err
	}
	page.CanOperate = page.Stuck == "" && !s.ReadOnly
	if t.RecreatedFrom != nil {
		page.Replacement = taskPath(*t.RecreatedFrom)
	}
	page.addSteps(steps, history, x.now)
	page.addHistory(x, history, offset)
	if more && page.Pager.After == "" {
		page.OlderMoves = apiOfTask(t) + "/transitions"
	}
	return &view{page: "taskpage", title: t.Namespace + "/" + t.Name, nav: "Tasks", live: true, body: page}, nil
}

// entryOf is the newest investigation of a task, or nil.
func (s *server) entryOf(x *exchange, task tasker.ID) (*taskEntry, error) {
	e, err := s.DB.EntryOfTask(x.Context(), task)
	if tasker.CodeOf(err) == tasker.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &taskEntry{
		Entry: e, Path: entryPath(e.UUID),
		Open: e.ResolutionStatus == tasker.EntryPending, WrittenOff: e.ResolutionStatus == tasker.EntryPermanentlyFailed,
	}, nil
}

// troubled is the step that an open investigation is about.
func troubled(e *taskEntry) *tasker.ID {
	if e == nil || !e.Open {
		return nil
	}
	return e.StepUUID
}

func apiOfTask(t tasker.Task) string     { return "/v1/tasks/" + t.UUID.String() }
func hrefOfStep(step tasker.Step) string { return "#step-" + step.UUID.String() }
func apiOfStep(step tasker.Step) string {
	return "/v1/tasks/" + step.TaskUUID.String() + "/workflow_steps/" + step.UUID.String()
}
func cancellable(t tasker.Task) bool {
	_, err := lifecycle.Task.Next(t.State, lifecycle.CancelTask)
	return err == nil
}

// whereabouts says in one sentence where a task stands, and what it waits for.
func whereabouts(t tasker.Task, steps []tasker.Step) string {
	var failed, outside []string
	for _, s := range steps {
		switch {
		case s.State == tasker.StepError && s.NextRetryAt == nil:
			failed = append(failed, s.Name)
		case s.State == tasker.StepPending && s.Type == tasker.ExternalStep && s.DependenciesSatisfied:
			outside = append(outside, s.Name)
		}
	}
	switch t.State {
	case tasker.TaskPending:
		return "It has not started yet."
	case tasker.TaskWaitingForRetry:
		return "A failed step is tried again later, by itself."
	case tasker.TaskWaitingForDependencies:
		if len(outside) > 0 {
			return "It waits for an answer from outside: " + names(outside) + "."
		}
		return "It waits for something outside."
	case tasker.TaskError:
		if len(failed) > 0 {
			return "It stands still: " + names(failed) + " failed for good, and what depends on it cannot run."
		}
		return "It stands still, and does not go on by itself."
	case tasker.TaskComplete:
		return "Every step is done."
	case tasker.TaskCancelled:
		return "Somebody cancelled it; the history says who and why."
	default:
		if len(failed) > 0 {
			return "It is under way, though " + names(failed) + " failed for good."
		}
		return "It is under way."
	}
}

// names lists a few names, and says how many more there are.
func names(list []string) string {
	const most = 3
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return strings.Join(list[:most], ", ") + " and " + count(len(list)-most, "other")
}

func (p *taskPage) addSteps(steps []tasker.Step, history []tasker.Transition, now time.Time) {
	byID := make(map[tasker.ID]tasker.Step, len(steps))
	for _, s := range steps {
		byID[s.UUID] = s
	}
	p.Axis = axisOf(p.Task, history, now)
	bars := p.Axis.bars(steps, history)
	for _, s := range steps {
		line := stepLine{
			Step: s, Bar: bars[s.UUID], Waits: s.TotalParents - s.CompletedParents, Failure: clip(failureOf(s.Error).Message, shownError),
			Results: taskDocumentOf(s.Results, maxResult, apiOfStep(s)), Errors: taskDocumentOf(s.Error, maxResult, apiOfStep(s)),
		}
		for _, id := range s.Parents {
			parent := byID[id]
			line.Needs = append(line.Needs, stepAnchor{
				parent.Name, hrefOfStep(parent), parent.State == tasker.StepComplete || parent.State == tasker.StepResolvedManually,
			})
		}
		if p.CanOperate {
			line.Actions = stepLinks(s, nil)
		}
		p.Steps = append(p.Steps, line)
	}
}

func (p *taskPage) addHistory(x *exchange, history []tasker.Transition, offset int) {
	links := map[tasker.ID]*stepAnchor{}
	for _, s := range p.Steps {
		links[s.UUID] = &stepAnchor{Name: s.Name, Href: hrefOfStep(s.Step)}
	}
	from := min(offset, len(history))
	to := min(from+pageRows, len(history))
	for _, m := range history[from:to] {
		line := historyLine{Transition: m}
		if m.To == string(tasker.StepError) {
			line.Message = clip(failureOf(m.Detail).Message, shownError)
		}
		whole := apiOfTask(p.Task)
		if m.StepUUID != nil {
			line.Step = links[*m.StepUUID]
			whole += "/workflow_steps/" + m.StepUUID.String()
		}
		line.Detail = taskDocumentOf(m.Detail, maxResult, whole+"/transitions")
		p.History = append(p.History, line)
	}
	p.Pager = pagerOf(x, from, pageRows, to-from, to < len(history))
}
