package web

import (
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/lifecycle"
)

const tasksPath = Root + "/tasks"

func (s *server) taskRoutes() []route {
	return []route{
		{http.MethodGet, "/tasks", s.tasks},
		{http.MethodGet, "/tasks/{id}", s.task},
		{http.MethodGet, "/tasks/{id}/cancel", s.cancelForm},
		{http.MethodPost, "/tasks/{id}/cancel", s.cancel},
		{http.MethodGet, "/tasks/{id}/investigate", s.investigateForm},
		{http.MethodPost, "/tasks/{id}/investigate", s.investigate},
	}
}

// A tasksPage is the list of tasks, newest first.
type tasksPage struct {
	Filter     taskFilter
	Clear      string // this list without a filter
	States     []tasker.TaskState
	Namespaces []string
	Tasks      []taskLine
	Pager      pager

	Wanted, Problem string // the id that was asked for, and why it leads nowhere
}

// A taskFilter is what the list is narrowed to, in the words of the query.
type taskFilter struct {
	State                         tasker.TaskState
	Namespace, Name, DeadLettered string
}

// Any tells whether something is left out.
func (f taskFilter) Any() bool { return f != taskFilter{} }

// A taskLine is a task as a list shows it.
type taskLine struct {
	tasker.Task
	Path     string
	Progress taskProgress
}

// tasks lists tasks, or goes on to the one whose id was asked for.
func (s *server) tasks(x *exchange) (*view, error) {
	page := tasksPage{Clear: tasksPath, Wanted: strings.TrimSpace(x.URL.Query().Get("id"))}
	status := http.StatusOK
	if page.Wanted != "" {
		next, err := s.find(x, page.Wanted)
		if next != "" {
			return &view{next: next}, nil
		}
		if tasker.CodeOf(err) == tasker.Internal {
			return nil, err
		}
		page.Problem, status = messageOf(err), apiv1.Status(tasker.CodeOf(err))
	}
	if err := s.listTasks(x, &page); err != nil {
		return nil, err
	}
	return &view{page: "task", title: "Tasks", nav: "Tasks", live: page.Wanted == "", status: status, body: page}, nil
}

// find returns the page of the task, or else of the investigation, with an id that
// somebody has copied from somewhere.
func (s *server) find(x *exchange, wanted string) (string, error) {
	var id tasker.ID
	if err := id.UnmarshalText([]byte(wanted)); err != nil {
		return "", tasker.Errorf(tasker.Invalid, "%q is no id of a task: give all of it, such as 0192f0c1-7a3e-7c4d-9b1e-2f5a6c7d8e9f", clip(wanted, 60))
	}
	_, err := s.DB.Task(x.Context(), id)
	if err == nil {
		return taskPath(id), nil
	}
	if tasker.CodeOf(err) != tasker.NotFound {
		return "", err
	}
	if _, other := s.DB.Entry(x.Context(), id); other == nil {
		return entryPath(id), nil
	}
	return "", tasker.Errorf(tasker.NotFound, "there is no task %s here", id)
}

func (s *server) listTasks(x *exchange, page *tasksPage) error {
	offset, err := x.number("offset", 0, 0, maxOffset)
	if err != nil {
		return err
	}
	if page.Filter, err = x.taskFilter(); err != nil {
		return err
	}
	f := tasker.TaskFilter{
		State: page.Filter.State, Namespace: page.Filter.Namespace, Name: page.Filter.Name, Limit: pageRows, Offset: offset,
	}
	if page.Filter.DeadLettered != "" {
		only := page.Filter.DeadLettered == "true"
		f.DeadLettered = &only
	}
	list, more, err := s.DB.Tasks(x.Context(), f)
	if err != nil {
		return err
	}
	for _, t := range list {
		page.Tasks = append(page.Tasks, taskLine{t, taskPath(t.UUID), taskProgressOf(t.Counts)})
	}
	page.Pager = pagerOf(x, offset, pageRows, len(list), more)
	// Only states in which a task can be found are offered; a link may name any.
	page.States = lifecycle.Resting()
	if page.Filter.State != "" && !slices.Contains(page.States, page.Filter.State) {
		page.States = append(page.States, page.Filter.State)
	}
	_, page.Namespaces, err = s.DB.OpenEntries(x.Context())
	return err
}

// taskFilter reads what the list is narrowed to.
func (x *exchange) taskFilter() (f taskFilter, err error) {
	if f.State, err = choice(x, "state", tasker.TaskStates()); err != nil {
		return f, err
	}
	if f.DeadLettered, err = choice(x, "dead_lettered", []string{"true", "false"}); err != nil {
		return f, err
	}
	if f.Namespace, err = x.word("namespace"); err != nil {
		return f, err
	}
	f.Name, err = x.word("name")
	return f, err
}

// word reads a text of the query that the database can compare.
func (x *exchange) word(name string) (string, error) {
	text := strings.TrimSpace(x.URL.Query().Get(name))
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return "", tasker.Errorf(tasker.Invalid, "%s has a NUL or is not valid UTF-8", name)
	}
	if len(text) > maxWord {
		return "", tasker.Errorf(tasker.Invalid, "%s has at most %d bytes", name, maxWord)
	}
	return text, nil
}

// maxWord bounds what is looked for.
const maxWord = 500

// A taskProgress says how far the steps of a task have come.
type taskProgress struct {
	Words string
	Parts []progressPart
}

// A progressPart is a piece of a bar that is a hundred wide.
type progressPart struct {
	X, Width float64
	Kind     string
}

// taskProgressOf draws and spells how many steps stand where.
func taskProgressOf(c tasker.StepCounts) taskProgress {
	p := taskProgress{Words: count(c.Completed, "") + " of " + count(c.Total, "step")}
	at := 0.0
	for _, part := range []struct {
		n          int
		kind, said string
	}{{c.Completed, "good", ""}, {c.InProgress, "busy", "under way"}, {c.Failed, "bad", "failed"}, {c.Cancelled, "idle", "cancelled"}} {
		p.add(&at, part.n, c.Total, part.kind)
		if part.n > 0 && part.said != "" {
			p.Words += ", " + count(part.n, "") + " " + part.said
		}
	}
	return p
}

func (p *taskProgress) add(at *float64, n, total int, kind string) {
	if n == 0 || total == 0 {
		return
	}
	width := 100 * float64(n) / float64(total)
	p.Parts = append(p.Parts, progressPart{*at, width, kind})
	*at += width
}
