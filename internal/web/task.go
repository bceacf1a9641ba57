package web

import (
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/core"
)

const tasksPath = Root + "/tasks"

// tasksPage lists tasks, newest first.
type tasksPage struct {
	Filter     tasker.TaskFilter
	Any, Rare  bool     // whether a field of the filter is set, and whether a folded one is
	Attributes []string // as typed
	States     []tasker.TaskState
	Namespaces []string
	Tasks      []tasker.Task
	Pager      pager
	CancelAll  string // link to cancel all matching tasks

	Wanted, Problem string // requested id and why it was not found
}

// showTasks lists tasks, or redirects to the one with the requested id.
func (s *server) showTasks(req *request) (*view, error) {
	page := tasksPage{Wanted: strings.TrimSpace(req.query().Get("id"))}
	status := http.StatusOK
	if page.Wanted != "" {
		next, err := s.findByText(req, page.Wanted)
		if next != "" {
			return &view{next: next}, nil
		}
		if tasker.CodeOf(err) == tasker.Internal {
			return nil, err
		}
		page.Problem, status = errorMessage(err), apiv1.Status(tasker.CodeOf(err))
	}
	s.listTasks(req, &page)
	return &view{page: "task", title: "Tasks", nav: "Tasks", live: page.Wanted == "", status: status, body: page}, nil
}

// findByText returns the page of the task or investigation with the id wanted.
func (s *server) findByText(req *request, wanted string) (string, error) {
	id, err := uuid.Parse(wanted)
	if err != nil {
		return "", tasker.Errorf(tasker.Invalid, "invalid task id %q: must be a UUID such as 0192f0c1-7a3e-7c4d-9b1e-2f5a6c7d8e9f", truncate(wanted, 60))
	}
	if _, err = s.DB.Task(req.Context(), id); err == nil {
		return taskPath(id), nil
	}
	if tasker.CodeOf(err) != tasker.NotFound {
		return "", err
	}
	if _, other := s.DB.Entry(req.withPermission(access.ReadInvestigations).Context(), id); other == nil {
		return entryPath(id), nil
	}
	return "", tasker.Errorf(tasker.NotFound, "task %s not found", id)
}

func (s *server) listTasks(req *request, page *tasksPage) {
	q := req.query()
	f := readTaskFilter(q)
	page.Filter, page.Any = f, !reflect.ValueOf(f).IsZero()
	page.Rare = q.hasAny("idempotency_key", "initiator", "source_system", "created_after", "created_before", "due_before")
	page.Attributes = q.all("attribute")
	f.Limit, f.Offset = pageRows, q.readOffset()
	list, more := loadPage(req, s.DB.Tasks, f)
	page.Tasks = list
	page.Pager = req.newPager(f.Offset, pageRows, len(list), more)
	page.CancelAll = s.buildCancelAllLink(req, page.Any)
	// The form offers stable states only, but a link can select any state.
	page.States = core.Resting()
	if f.State != "" && !slices.Contains(page.States, f.State) {
		page.States = append(page.States, f.State)
	}
	page.Namespaces = loadAll(req.withPermission(access.ReadInvestigations), s.DB.Namespaces)
}

// readTaskFilter reads a task filter from the query.
func readTaskFilter(q *query) tasker.TaskFilter {
	f := tasker.TaskFilter{
		State: readChoice(q, "state", tasker.TaskStates()), Namespace: q.readText("namespace", maxText), Name: q.readText("name", maxText),
		DeadLettered: q.readFlag("dead_lettered"), CorrelationID: q.readText("correlation_id", maxText),
		IdempotencyKey: q.readText("idempotency_key", maxText), Initiator: q.readText("initiator", maxText), SourceSystem: q.readText("source_system", maxText),
		CreatedAfter: q.readTime("created_after"), CreatedBefore: q.readTime("created_before"), Overdue: q.isOn("overdue"), DueBefore: q.readTime("due_before"),
		Tags: q.readTexts("tag", tasker.MaxSearchTags),
	}
	if parent := q.readID("parent"); parent != nil {
		f.Parent = *parent
	}
	var err error
	f.Attributes, err = tasker.ParseAttributeFilters(q.readTexts("attribute", tasker.MaxSearchConditions))
	q.req.fail(err)
	return f
}

// progress is a progress bar and its description.
type progress struct {
	Words string
	Parts []progressPart
}

// progressPart is a part of a bar that is 100 wide.
type progressPart struct {
	X, Width float64
	Kind     string
}

// portion is the number of objects in one state.
type portion struct {
	n          int64
	kind, name string
}

// newProgress returns a bar with a part for each portion of total, described by the portions that
// have a name.
func newProgress(total int, list []portion) (p progress) {
	var words []string
	x := 0.0
	for _, part := range list {
		if part.n == 0 || total == 0 {
			continue
		}
		width := 100 * float64(part.n) / float64(total)
		p.Parts = append(p.Parts, progressPart{x, width, part.kind})
		x += width
		if part.name != "" {
			words = append(words, formatCount(part.n, "")+" "+part.name)
		}
	}
	p.Words = strings.Join(words, " · ")
	return p
}

// newTaskProgress shows the states of the steps of a task.
func newTaskProgress(c tasker.StepCounts) progress {
	p := newProgress(c.Total, []portion{
		{int64(c.Completed), "good", ""}, {int64(c.InProgress), "busy", "in progress"}, {int64(c.Failed), "bad", "failed"},
		{int64(c.Skipped), "idle", "skipped"}, {int64(c.Cancelled), "idle", "cancelled"},
	})
	done := formatCount(c.Completed, "") + " of " + formatCount(c.Total, "step")
	if p.Words != "" {
		done += " · " + p.Words
	}
	p.Words = done
	return p
}

// Limits of a task page. The API returns everything.
const (
	maxContext = 64 << 10
	maxResult  = 8 << 10 // of each of up to 1000 steps
	maxHistory = 2000
)

// taskPage shows one task.
type taskPage struct {
	Task       tasker.Task
	Path       string
	Progress   progress
	Blocking   map[string][]string // names of the steps that the task waits for, by the reason
	Why        *tasker.Condition
	WhyStep    *stepWhy      // of the step selected with ?why=
	Entry      *tasker.Entry // newest investigation
	CanCancel  bool
	CanChange  bool   // change the version
	CanOpen    bool   // open an investigation
	CanOperate bool   // act on steps
	Stuck      string // why no action is possible
	Graph      graph
	Steps      []stepRow
	StepPager  pager
	AllSteps   int
	Axis       axis
	Context    document
	History    []historyLine
	Pager      pager // of the history
	OlderMoves string

	Schedule string // page of the schedule that created it
	Tree     []tasker.TreeTask
}

func (s *server) showTask(req *request) (*view, error) {
	t := loadByID(req, "task", s.DB.Task)
	id := t.UUID
	steps, err := s.DB.StepsAndFailedItems(req.Context(), id, tasker.ID{})
	req.fail(err)
	history, more, err := s.DB.TaskHistory(req.Context(), id, maxHistory)
	req.fail(err)
	history = selectMoves(steps, history)
	entry := s.findEntry(req, id)
	if err := req.err(); err != nil {
		return nil, err
	}
	page := taskPage{
		Task: t, Path: taskPath(id), Progress: newTaskProgress(t.StepCounts), Blocking: listBlocking(steps), Entry: entry,
		CanCancel: isCancellable(t), CanOpen: explainNoInvestigation(entry) == "", CanChange: s.canChange(req, t),
		Context: newDocument("Context", t.Context, maxContext, taskAPIPath(t)).withID("context"), Axis: newAxis(t, history, req.now),
		Schedule: s.findSchedulePath(req, t), Stuck: explainUnrepairable(t, entry), Tree: s.findTree(req, t, steps),
		Why: s.findCondition(req, id), WhyStep: s.findStepWhy(req, steps), AllSteps: len(steps),
	}
	var failed *tasker.ID
	if entry != nil {
		failed = failedStepID(*entry)
	}
	page.Graph = drawGraph(stepsAround(steps, failed), failed, stepHref)
	page.CanOperate = page.Stuck == "" && s.canShowAction(req, access.OperateSteps, t.Namespace)

	page.pageSteps(req, steps, history)
	if more && page.Pager.After == "" {
		page.OlderMoves = taskAPIPath(t) + "/transitions"
	}
	return &view{page: "taskpage", title: t.Namespace + "/" + t.Name, nav: "Tasks", live: true, body: page}, nil
}

// DurationFirst reports whether the task has a due time but its maximum duration ends earlier.
func (p taskPage) DurationFirst() bool {
	which, _ := tasker.FirstDeadline(p.Task.Due, p.Task.MaxDurationEndsAt)
	return p.Task.Due != nil && which == tasker.ByMaxDuration
}

// canChange reports whether the task can move to another version.
func (s *server) canChange(req *request, t tasker.Task) bool {
	return isCancellable(t) && t.Phase == "" && len(load(req, s.DB.OtherVersions, templateVersion(t))) > 0
}

// findTree returns the ancestors and descendants of a task, or nothing if it has none.
func (s *server) findTree(req *request, t tasker.Task, steps []tasker.Step) []tasker.TreeTask {
	if t.ParentTaskUUID == nil && !slices.ContainsFunc(steps, func(s tasker.Step) bool { return s.ChildTaskUUID != nil }) {
		return nil
	}
	return load(req, s.DB.TaskTree, t.UUID).Tasks
}

// findEntry returns the newest investigation of a task, or nil.
func (s *server) findEntry(req *request, task tasker.ID) *tasker.Entry {
	e, err := s.DB.EntryOfTask(req.Context(), task)
	if tasker.CodeOf(err) == tasker.NotFound {
		return nil
	}
	req.fail(err)
	return &e
}

func taskAPIPath(t tasker.Task) string { return "/v1/tasks/" + t.UUID.String() }
func stepHref(step tasker.Step) string { return "#step-" + step.UUID.String() }
func stepAPIPath(step tasker.Step) string {
	return "/v1/tasks/" + step.TaskUUID.String() + "/workflow_steps/" + step.UUID.String()
}
func isCancellable(t tasker.Task) bool {
	_, err := core.TaskMoves.Next(t.State, core.CancelTask)
	return err == nil
}

// listBlocking returns the names of the steps that a task waits for, by the reason.
func listBlocking(steps []tasker.Step) map[string][]string {
	names := map[string][]string{}
	for _, s := range steps {
		kind := ""
		switch {
		case hasFailedPermanently(s):
			kind = "failed"
		case s.State != tasker.StepPending:
		case (s.Type == tasker.ExternalStep || s.Type == tasker.WaitStep) && s.DependenciesSatisfied,
			s.Type == tasker.ChildStep && s.ChildTaskUUID != nil:
			kind = string(s.Type)
		}
		names[kind] = append(names[kind], s.Name)
	}
	return names
}

// historyLine is a state change of a task or a step.
type historyLine struct {
	tasker.Transition
	Step  *stepAnchor // nil for the task itself
	After string      // duration of the previous state, if known and at least a second
}

// selectMoves removes the transitions of steps that are not in steps, which are the items of map
// steps.
func selectMoves(steps []tasker.Step, history []tasker.Transition) []tasker.Transition {
	shown := make(map[tasker.ID]bool, len(steps))
	for _, s := range steps {
		shown[s.UUID] = true
	}
	return slices.DeleteFunc(history, func(t tasker.Transition) bool { return t.StepUUID != nil && !shown[*t.StepUUID] })
}

// newHistoryLines returns the lines of a history, newest first.
func newHistoryLines(history []tasker.Transition, steps []tasker.Step) []historyLine {
	names := make(map[tasker.ID]string, len(steps))
	for _, s := range steps {
		names[s.UUID] = s.Name
	}
	lines := make([]historyLine, len(history))
	before := map[tasker.ID]time.Time{} // by step; zero for the task
	for i, t := range slices.Backward(history) {
		lines[i].Transition = t
		var of tasker.ID
		if t.StepUUID != nil {
			of = *t.StepUUID
			lines[i].Step = &stepAnchor{Name: names[of], Href: "#step-" + of.String()}
		}
		if since, known := before[of]; known && t.CreatedAt.Sub(since) >= time.Second {
			lines[i].After = formatLength(t.CreatedAt.Sub(since))
		}
		before[of] = t.CreatedAt
	}
	return lines
}

// Key returns the element id. Changes of tasks and of steps have separate ids.
func (l historyLine) Key() string {
	kind := "move-t"
	if l.StepUUID != nil {
		kind = "move-s"
	}
	return kind + strconv.FormatInt(l.ID, 10)
}

// Message returns the error of a failure.
func (l historyLine) Message() string {
	if l.To != string(tasker.StepError) {
		return ""
	}
	return truncate(parseFailure(l.Transition.Detail).Message, shownError)
}

// Detail returns the details of the change.
func (l historyLine) Detail() document {
	whole := "/v1/tasks/" + l.TaskUUID.String()
	if l.StepUUID != nil {
		whole += "/workflow_steps/" + l.StepUUID.String()
	}
	return newDocument("Detail", l.Transition.Detail, maxResult, whole+"/transitions").withID("detail-" + l.Key())
}
