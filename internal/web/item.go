package web

import (
	"strconv"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

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

// ItemsPath returns the path of the list of items of a map step, or "" for other steps.
func (r stepRow) ItemsPath() string {
	if r.Items == nil {
		return ""
	}
	return itemsPath(r.TaskUUID, r.UUID)
}

// ElementDoc returns the list element that an item processes.
func (r stepRow) ElementDoc() document {
	if r.Map == nil {
		return document{}
	}
	return newDocument("Element", r.Map.Value, maxResult, stepAPIPath(r.Step)).withID("element-" + r.UUID.String())
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
		page.Pager.Here = strconv.Itoa(list[0].Map.Ordinal) + "–" + strconv.Itoa(list[len(list)-1].Map.Ordinal)
	}
	return &view{page: "items", title: "Items of " + page.Step.Name, nav: "Tasks", live: true, body: page}, nil
}
