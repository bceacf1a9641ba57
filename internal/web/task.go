package web

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/lifecycle"
)

const tasksPath = Root + "/tasks"

// A tasksPage is the list of tasks, newest first.
type tasksPage struct {
	Filter     taskFilter
	Tags       []string // those that are asked for, and an empty one to add another
	Attributes []string // the same
	Clear      string   // this list without a filter
	States     []tasker.TaskState
	Namespaces []string
	Tasks      []taskLine
	Pager      pager
	CancelAll  string // where all that fit the filter are cancelled; empty without one

	Wanted, Problem string // the id that was asked for, and why it leads nowhere
}

// A taskFilter is what the list is narrowed to, in the words of the query.
type taskFilter struct {
	State                                                  tasker.TaskState
	Namespace, Name, DeadLettered                          string
	Tags, CorrelationID, Parent, Attributes                string
	IdempotencyKey, Initiator, SourceSystem, After, Before string
	Overdue                                                bool
	DueBefore                                              string
}

// Any tells whether something is left out.
func (f taskFilter) Any() bool { return f != taskFilter{} }

// Rare tells whether something is left out by what is seldom asked for.
func (f taskFilter) Rare() bool {
	return f.IdempotencyKey+f.Initiator+f.SourceSystem+f.After+f.Before+f.DueBefore != ""
}

// taggedPath returns the address of the list of the tasks that have a tag.
func taggedPath(tag string) string { return tasksPath + "?tag=" + url.QueryEscape(tag) }

// correlatedPath returns the address of the list of the tasks that have a correlation id.
func correlatedPath(id string) string { return tasksPath + "?correlation_id=" + url.QueryEscape(id) }

// A taskLine is a task as a list shows it.
type taskLine struct {
	tasker.Task
	Path     string
	Progress taskProgress
}

// tasks lists tasks, or goes on to the one whose id was asked for.
func (s *server) tasks(req *request) (*view, error) {
	page := tasksPage{Clear: tasksPath, Wanted: strings.TrimSpace(req.query().Get("id"))}
	status := http.StatusOK
	if page.Wanted != "" {
		next, err := s.find(req, page.Wanted)
		if next != "" {
			return &view{next: next}, nil
		}
		if tasker.CodeOf(err) == tasker.Internal {
			return nil, err
		}
		page.Problem, status = messageOf(err), apiv1.Status(tasker.CodeOf(err))
	}
	if err := s.listTasks(req, &page); err != nil {
		return nil, err
	}
	return &view{page: "task", title: "Tasks", nav: "Tasks", live: page.Wanted == "", status: status, body: page}, nil
}

// find returns the page of the task, or else of the investigation, with an id that
// somebody has copied from somewhere.
func (s *server) find(req *request, wanted string) (string, error) {
	var id tasker.ID
	if err := id.UnmarshalText([]byte(wanted)); err != nil {
		return "", tasker.Errorf(tasker.Invalid, "invalid task id %q: must be a whole UUID, such as 0192f0c1-7a3e-7c4d-9b1e-2f5a6c7d8e9f", clip(wanted, 60))
	}
	_, err := s.DB.Task(req.Context(), id)
	if err == nil {
		return taskPath(id), nil
	}
	if tasker.CodeOf(err) != tasker.NotFound {
		return "", err
	}
	if _, other := s.DB.Entry(req.within(access.ReadInvestigations).Context(), id); other == nil {
		return entryPath(id), nil
	}
	return "", tasker.Errorf(tasker.NotFound, "there is no task %s here", id)
}

func (s *server) listTasks(req *request, page *tasksPage) error {
	q := req.query()
	f, err := filterOf(q)
	if err != nil {
		return err
	}
	attributes := q.texts("attribute", tasker.MaxSearchConditions)
	f.Limit, f.Offset = pageRows, q.offset()
	if q.err != nil {
		return q.err
	}
	page.Filter = taskFilter{
		Tags: strings.Join(f.Tags, " "), Attributes: strings.Join(attributes, " "),
		State: f.State, Namespace: f.Namespace, Name: f.Name, CorrelationID: f.CorrelationID, Parent: q.Get("parent"), IdempotencyKey: f.IdempotencyKey,
		Initiator: f.Initiator, SourceSystem: f.SourceSystem, After: q.Get("created_after"), Before: q.Get("created_before"), Overdue: f.Overdue, DueBefore: q.Get("due_before"),
	}
	if f.DeadLettered != nil {
		page.Filter.DeadLettered = strconv.FormatBool(*f.DeadLettered)
	}
	page.Tags, page.Attributes = append(slices.Clone(f.Tags), ""), append(slices.Clone(attributes), "")
	list, more, err := s.DB.Tasks(req.Context(), f)
	if err != nil {
		return err
	}
	for _, t := range list {
		page.Tasks = append(page.Tasks, taskLine{t, taskPath(t.UUID), taskProgressOf(t.Counts)})
	}
	page.Pager = req.pager(f.Offset, pageRows, len(list), more)
	page.CancelAll = s.cancelAllLink(req, page.Filter.Any())
	// Only states in which a task can be found are offered; a link may name any.
	page.States = lifecycle.Resting()
	if page.Filter.State != "" && !slices.Contains(page.States, page.Filter.State) {
		page.States = append(page.States, page.Filter.State)
	}
	page.Namespaces, err = s.DB.Namespaces(req.within(access.ReadInvestigations).Context())
	return err
}

// filterOf reads what the list is narrowed to.
func filterOf(q *query) (tasker.TaskFilter, error) {
	f := tasker.TaskFilter{
		State: choice(q, "state", tasker.TaskStates()), Namespace: q.text("namespace", maxText), Name: q.text("name", maxText),
		DeadLettered: q.flag("dead_lettered"), CorrelationID: q.text("correlation_id", maxText),
		IdempotencyKey: q.text("idempotency_key", maxText), Initiator: q.text("initiator", maxText), SourceSystem: q.text("source_system", maxText),
		CreatedAfter: q.instant("created_after"), CreatedBefore: q.instant("created_before"), Overdue: q.on("overdue"), DueBefore: q.instant("due_before"),
	}
	if parent := q.id("parent"); parent != nil {
		f.Parent = *parent
	}
	f.Tags = q.texts("tag", tasker.MaxSearchTags)
	var err error
	if f.Attributes, err = tasker.ParseAttributeFilters(q.texts("attribute", tasker.MaxSearchConditions)); err != nil {
		return f, err
	}
	return f, q.err
}

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
	}{{c.Completed, "good", ""}, {c.InProgress, "busy", "under way"}, {c.Failed, "bad", "failed"}, {c.Skipped, "idle", "skipped"}, {c.Cancelled, "idle", "cancelled"}} {
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
	Why         *whyLine
	WhyStep     *stepWhy // of the step that ?why= names
	Entry       *taskEntry
	CanCancel   bool
	CanChange   bool   // its version
	CanOpen     bool   // an investigation
	CanOperate  bool   // on steps
	Stuck       string // why not
	Graph       graph
	Steps       []stepRow
	StepPager   pager
	AllSteps    int
	Axis        axis
	Context     document
	History     []historyLine
	Pager       pager // of the history
	OlderMoves  string
	Replacement string // the page of the task that this one replaces
	Parent      string // the page of the task whose step started this one
	Schedule    string // the page of the schedule that made it
	Tree        []treeLine
}

// A taskEntry is the newest investigation of a task.
type taskEntry struct {
	tasker.Entry
	Path             string
	Open, WrittenOff bool
}

// task shows one task.
func (s *server) task(req *request) (*view, error) {
	id, err := req.id("task")
	if err != nil {
		return nil, err
	}
	t, err := s.DB.Task(req.Context(), id)
	if err != nil {
		return nil, err
	}
	steps, err := s.DB.StepsAndFailedItems(req.Context(), id, tasker.ID{})
	if err != nil {
		return nil, err
	}
	history, more, err := s.DB.TaskHistory(req.Context(), id, maxHistory)
	if err != nil {
		return nil, err
	}
	history = movesOf(steps, history)
	entry, err := s.entryOf(req, id)
	if err != nil {
		return nil, err
	}
	page := taskPage{
		Task: t, Path: taskPath(id), Progress: taskProgressOf(t.Counts), Standing: progressSentence(t, steps), Entry: entry,
		CanCancel: cancellable(t), CanOpen: entry == nil || !entry.Open && !entry.WrittenOff,
		Context: documentOf("Context", t.Context, maxContext, apiOfTask(t)).withID("context"), Axis: axisOf(t, history, req.now),
	}
	var failed *tasker.ID
	if entry != nil {
		failed = failedStep(entry.Entry)
	}
	page.Graph, page.AllSteps = drawGraph(around(steps, failed), failed, hrefOfStep), len(steps)
	if page.Schedule, err = s.scheduleOf(req, t); err != nil {
		return nil, err
	}
	if page.CanChange, err = s.canChange(req, t); err != nil {
		return nil, err
	}
	page.Stuck = whyUnrepairable(t, entry)
	if page.Why, err = s.why(req, id); err != nil {
		return nil, err
	}
	if page.WhyStep, err = s.whyStep(req, steps); err != nil {
		return nil, err
	}
	page.CanOperate = page.Stuck == "" && s.showsAction(req, access.OperateSteps, t.Namespace)
	page.Replacement, page.Parent = origins(t)
	if page.Tree, err = s.tree(req, t, steps); err != nil {
		return nil, err
	}
	if err := page.pageSteps(req, steps, history); err != nil {
		return nil, err
	}
	if more && page.Pager.After == "" {
		page.OlderMoves = apiOfTask(t) + "/transitions"
	}
	return &view{page: "taskpage", title: t.Namespace + "/" + t.Name, nav: "Tasks", live: true, body: page}, nil
}

// DurationFirst reports whether max_duration_minutes of its template is over before the task is due.
func (p taskPage) DurationFirst() bool {
	which, _ := tasker.FirstDeadline(p.Task.Due, p.Task.MaxDurationEndsAt)
	return p.Task.Due != nil && which == tasker.ByMaxDuration
}

// canChange reports whether there is another version to which the task could be brought.
func (s *server) canChange(req *request, t tasker.Task) (bool, error) {
	if !cancellable(t) || t.Phase != "" {
		return false, nil
	}
	versions, err := s.DB.OtherVersions(req.Context(), versionOf(t))
	return len(versions) > 0, err
}

// origins are the pages of the task in whose place a task was made, and of the step that started
// it; empty where there is none.
func origins(t tasker.Task) (replacement, parent string) {
	if t.RecreatedFrom != nil {
		replacement = taskPath(*t.RecreatedFrom)
	}
	if t.ParentTaskUUID != nil {
		parent = taskPath(*t.ParentTaskUUID) + "#step-" + t.ParentStepUUID.String()
	}
	return replacement, parent
}

// A treeLine is a task of the tree of the task that is shown.
type treeLine struct {
	tasker.TreeTask
	Path     string
	Here     bool
	Progress taskProgress
	Children string // the list of its children, when some are left out
}

// Indent is how far the line is to the right.
func (l treeLine) Indent() string { return strings.Repeat("· ", l.Depth) }

// tree returns the tasks above and below a task; none when it stands alone.
func (s *server) tree(req *request, t tasker.Task, steps []tasker.Step) ([]treeLine, error) {
	if t.ParentTaskUUID == nil && !slices.ContainsFunc(steps, func(s tasker.Step) bool { return s.ChildTaskUUID != nil }) {
		return nil, nil
	}
	tree, err := s.DB.TaskTree(req.Context(), t.UUID)
	if err != nil {
		return nil, err
	}
	lines := make([]treeLine, len(tree.Tasks))
	for i, n := range tree.Tasks {
		lines[i] = treeLine{TreeTask: n, Path: taskPath(n.Task.UUID), Here: n.Task.UUID == t.UUID, Progress: taskProgressOf(n.Task.Counts)}
		if n.MoreChildren {
			lines[i].Children = tasksPath + "?parent=" + n.Task.UUID.String()
		}
	}
	return lines, nil
}

// entryOf is the newest investigation of a task, or nil.
func (s *server) entryOf(req *request, task tasker.ID) (*taskEntry, error) {
	e, err := s.DB.EntryOfTask(req.Context(), task)
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

func apiOfTask(t tasker.Task) string     { return "/v1/tasks/" + t.UUID.String() }
func hrefOfStep(step tasker.Step) string { return "#step-" + step.UUID.String() }
func apiOfStep(step tasker.Step) string {
	return "/v1/tasks/" + step.TaskUUID.String() + "/workflow_steps/" + step.UUID.String()
}
func cancellable(t tasker.Task) bool {
	_, err := lifecycle.Task.Next(t.State, lifecycle.CancelTask)
	return err == nil
}

// progressSentence says how far a task has come, and what it waits for.
func progressSentence(t tasker.Task, steps []tasker.Step) string {
	var failed, external, clock, children []string
	for _, s := range steps {
		switch {
		case failedForGood(s):
			failed = append(failed, s.Name)
		case s.State == tasker.StepPending && s.Type == tasker.ExternalStep && s.DependenciesSatisfied:
			external = append(external, s.Name)
		case s.State == tasker.StepPending && s.Type == tasker.WaitStep && s.DependenciesSatisfied:
			clock = append(clock, s.Name)
		case s.State == tasker.StepPending && s.Type == tasker.ChildStep && s.ChildTaskUUID != nil:
			children = append(children, s.Name)
		}
	}
	switch t.State {
	case tasker.TaskPending:
		return "It has not started yet."
	case tasker.TaskWaitingForRetry:
		return "A failed step is retried automatically, after its backoff."
	case tasker.TaskWaitingForDependencies:
		if len(external) > 0 {
			return "It waits for the result of an external step: " + listed(external) + "."
		}
		if len(children) > 0 {
			return "It waits for the child task of a step: " + listed(children) + "."
		}
		if len(clock) > 0 {
			return "It waits until the wait of a step is over: " + listed(clock) + "."
		}
		return "It waits for an external result."
	case tasker.TaskError:
		if len(failed) > 0 {
			return "It cannot progress: " + listed(failed) + " failed permanently, and the steps that depend on it cannot run."
		}
		return "It cannot progress, and no retry is due."
	case tasker.TaskComplete:
		return "Every step is done."
	case tasker.TaskCancelled:
		return "It was cancelled; the history says by whom and why."
	default:
		if len(failed) > 0 {
			return "It is in progress, but " + listed(failed) + " failed permanently."
		}
		return "It is in progress."
	}
}
