package web

import (
	"slices"
	"strconv"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// Limits of pages about tasks with many steps.
const (
	manySteps  = 100 // pages show all steps of tasks with up to this many
	shownSteps = 40  // rows of steps and of their history
	drawnSteps = 60
)

// stepRank orders the steps of a large task: failed, in progress, pending, done.
func stepRank(s tasker.Step) int {
	switch {
	case s.State == tasker.StepError:
		return 0
	case s.State == tasker.StepPending:
		return 2
	case s.State.Done() || s.State == tasker.StepSkipped || s.State == tasker.StepCancelled:
		return 3
	}
	return 1
}

func sortUrgentFirst(steps []tasker.Step) []tasker.Step {
	list := slices.Clone(steps)
	slices.SortStableFunc(list, func(a, b tasker.Step) int { return stepRank(a) - stepRank(b) })
	return list
}

// stepsAround returns the steps that the graph shows. For a large task, these are failed and
// running steps, their parents and their descendants.
func stepsAround(steps []tasker.Step, marked *tasker.ID) []tasker.Step {
	steps, marked = withoutItems(steps, marked)
	if len(steps) <= manySteps {
		return steps
	}
	children, at := map[tasker.ID][]tasker.ID{}, map[tasker.ID]tasker.Step{}
	for _, s := range steps {
		at[s.UUID] = s
		for _, p := range s.Parents {
			children[p] = append(children[p], s.UUID)
		}
	}
	var picked []tasker.ID
	has := map[tasker.ID]bool{}
	add := func(ids ...tasker.ID) {
		for _, id := range ids {
			if _, known := at[id]; known && !has[id] && len(picked) < drawnSteps {
				has[id], picked = true, append(picked, id)
			}
		}
	}
	if marked != nil {
		add(*marked)
		add(at[*marked].Parents...)
	}
	for _, s := range sortUrgentFirst(steps) {
		if len(picked) == 0 || stepRank(s) < 2 && len(picked) < drawnSteps/2 {
			add(s.UUID)
			add(s.Parents...)
		}
	}
	for i := 0; i < len(picked); i++ {
		add(children[picked[i]]...)
	}
	return slices.DeleteFunc(slices.Clone(steps), func(s tasker.Step) bool { return !has[s.UUID] })
}

// pageSteps adds the steps and the history. For a large task it adds the most urgent part, or the
// one selected with ?steps= or ?step=.
func (p *taskPage) pageSteps(req *request, steps []tasker.Step, history []tasker.Transition) {
	q := req.query()
	from, size, rows := q.readNumber("steps", 0, 0, tasker.MaxSteps), pageRows, len(steps)
	step, offset := q.readID("step"), q.readNumber("offset", 0, 0, maxHistory)
	many := len(steps) > manySteps
	all := steps
	if many {
		steps, size, rows = sortUrgentFirst(steps), shownSteps, shownSteps
		if i := slices.IndexFunc(steps, func(s tasker.Step) bool { return step != nil && s.UUID == *step }); i >= 0 {
			from = i / size * size
		}
	} else {
		from = 0
	}
	list := newStepRows(steps, p.CanOperate, nil)
	bars := p.Axis.newBars(all, history)
	for i := range list {
		list[i].Bar = bars[list[i].UUID]
	}

	p.Steps, p.StepPager = selectPage(req, list, "steps", from, max(rows, 1))
	p.StepPager.Label = "Pages of the steps"
	p.History, p.Pager = selectPage(req, newHistoryLines(history, all), "offset", offset, size)
	if many {
		p.linkSteps()
	}
}

// linkSteps makes links to steps that this page does not show lead to the page that does.
func (p *taskPage) linkSteps() {
	here := map[string]bool{}
	for _, r := range p.Steps {
		here[stepHref(r.Step)] = true
	}
	lead := func(href *string) {
		if id, ok := strings.CutPrefix(*href, "#step-"); ok && !here[*href] {
			*href = p.Path + "?step=" + id + *href
		}
	}
	for i := range p.Steps {
		for j := range p.Steps[i].Needs {
			lead(&p.Steps[i].Needs[j].Href)
		}
	}
	for i := range p.Graph.Nodes {
		lead(&p.Graph.Nodes[i].Href)
	}
	for i := range p.History {
		if p.History[i].Step != nil {
			lead(&p.History[i].Step.Href)
		}
	}
}

// itemStates are the states by which items can be filtered, most urgent first.
var itemStates = []tasker.StepState{
	tasker.StepError, tasker.StepInProgress, tasker.StepEnqueued, tasker.StepPending, tasker.StepComplete, tasker.StepResolvedManually, tasker.StepCancelled,
}

// itemsPage lists the items of a map step.
type itemsPage struct {
	Task       tasker.Task
	Step       tasker.Step
	Back       string // the step on the page of its task
	State      tasker.StepState
	Tabs       []link
	Items      []stepRow
	CanOperate bool   // act on items
	Stuck      string // why no action is possible
	Pager      pager
}

func itemsPath(task, step tasker.ID) string {
	return taskPath(task) + "/steps/" + step.String() + "/items"
}

func (s *server) showItems(req *request) (*view, error) {
	id := req.pathID("step")
	q := req.query()
	f := tasker.MapItemFilter{State: readChoice(q, "state", itemStates), From: q.readNumber("from", 0, 0, tasker.MaxMapItems), Limit: pageRows}
	page := itemsPage{State: f.State, Task: loadByID(req, "task", s.DB.Task)}
	ctx, task := req.Context(), page.Task.UUID
	page.Back = taskPath(task) + "#step-" + id.String()
	var err error
	page.Step, err = s.DB.Step(ctx, task, id)
	req.fail(err)
	list, next, err := s.DB.MapItems(ctx, task, id, f)
	req.fail(err)
	page.Stuck = explainUnrepairable(page.Task, s.findEntry(req, task))
	page.CanOperate = page.Stuck == "" && s.canShowAction(req, access.OperateSteps, page.Task.Namespace)
	page.Items = newStepRows(list, page.CanOperate, nil)
	page.Tabs = append(page.Tabs, link{Name: "all", Path: req.buildLink("state", "", "from", ""), Here: f.State == ""})
	for _, state := range itemStates {
		page.Tabs = append(page.Tabs, link{Name: formatWords(state), Path: req.buildLink("state", string(state), "from", ""), Here: f.State == state})
	}
	if f.From > 0 {
		page.Pager.Before = req.buildLink("from", "") // pages are limited by bytes, so the previous start is unknown
	}
	if next > 0 {
		page.Pager.After = req.buildLink("from", strconv.Itoa(next))
	}
	if len(list) > 0 {
		page.Pager.Here = strconv.Itoa(*list[0].Ordinal) + "–" + strconv.Itoa(*list[len(list)-1].Ordinal)
	}
	return &view{page: "items", title: "Items of " + page.Step.Name, nav: "Tasks", live: true, body: page}, nil
}
