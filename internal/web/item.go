package web

import (
	"strconv"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// itemStates are the states by which the items of a step are looked for, those first that may need
// somebody.
var itemStates = []tasker.StepState{
	tasker.StepError, tasker.StepInProgress, tasker.StepEnqueued, tasker.StepPending, tasker.StepComplete, tasker.StepResolvedManually, tasker.StepCancelled,
}

// An itemsPage is the items of a map step, in their order.
type itemsPage struct {
	Task       tasker.Task
	Step       tasker.Step
	Back       string // the step on the page of its task
	State      tasker.StepState
	Tabs       []itemsTab
	Items      []stepRow
	CanOperate bool   // on items
	Stuck      string // why not
	Pager      pager
}

// An itemsTab leads to the items in one state, or to all.
type itemsTab struct {
	State tasker.StepState // empty: all
	Href  string
	Here  bool
}

// itemsPath returns the address of the items of a map step.
func itemsPath(task, step tasker.ID) string {
	return taskPath(task) + "/steps/" + step.String() + "/items"
}

// ItemsPath returns the page of the items of the step; empty when it has none.
func (r stepRow) ItemsPath() string {
	if r.Items == nil {
		return ""
	}
	return itemsPath(r.TaskUUID, r.UUID)
}

// ElementDoc returns the element of the list that an item is for.
func (r stepRow) ElementDoc() document {
	if r.Map == nil {
		return document{}
	}
	return documentOf("Element", r.Map.Value, maxResult, apiOfStep(r.Step)).withID("element-" + r.UUID.String())
}

// items lists the items of a map step.
func (s *server) items(req *request) (*view, error) {
	task, err := req.id("task")
	if err != nil {
		return nil, err
	}
	id, err := req.id("step")
	if err != nil {
		return nil, err
	}
	q := req.query()
	f := tasker.MapItemFilter{State: choice(q, "state", itemStates), From: q.number("from", 0, 0, tasker.MaxMapItems), Limit: pageRows}
	if q.err != nil {
		return nil, q.err
	}
	page := itemsPage{State: f.State, Back: taskPath(task) + "#step-" + id.String()}
	ctx := req.Context()
	if page.Task, err = s.DB.Task(ctx, task); err != nil {
		return nil, err
	}
	if page.Step, err = s.DB.Step(ctx, task, id); err != nil {
		return nil, err
	}
	list, next, err := s.DB.MapItems(ctx, task, id, f)
	if err != nil {
		return nil, err
	}
	entry, err := s.entryOf(req, task)
	if err != nil {
		return nil, err
	}
	page.Stuck = whyUnrepairable(page.Task, entry)
	page.CanOperate = page.Stuck == "" && s.showsAction(req, access.OperateSteps, page.Task.Namespace)
	page.Items = stepRows(list, page.CanOperate, nil)
	page.Tabs = append(page.Tabs, itemsTab{"", req.link("state", "", "from", ""), f.State == ""})
	for _, state := range itemStates {
		page.Tabs = append(page.Tabs, itemsTab{state, req.link("state", string(state), "from", ""), f.State == state})
	}
	if f.From > 0 {
		page.Pager.Before = req.link("from", "") // of a page that is cut by its bytes nobody knows where the one before began
	}
	if next > 0 {
		page.Pager.After = req.link("from", strconv.Itoa(next))
	}
	if len(list) > 0 {
		page.Pager.Here = strconv.Itoa(list[0].Map.Ordinal) + "–" + strconv.Itoa(list[len(list)-1].Map.Ordinal)
	}
	return &view{page: "items", title: "Items of " + page.Step.Name, nav: "Tasks", live: true, body: page}, nil
}
