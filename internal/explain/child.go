package explain

import (
	"context"
	"fmt"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/postgres"
)

// maxChildren is how many child tasks are followed on each level.
const maxChildren = 20

// children adds to views the facts of the child tasks for which their steps wait, so many
// levels down: two statements a level.
func (s *Service) children(ctx context.Context, views []view, levels int) error {
	var ids []tasker.ID
	for _, v := range views {
		if v.waitsForChild() && len(ids) < maxChildren {
			ids = append(ids, *v.step.ChildUUID)
		}
	}
	if len(ids) == 0 || levels == 0 {
		return nil
	}
	tasks, err := s.db.ExplainTasks(ctx, postgres.ExplainedTasks{Tasks: ids, Steps: tasker.MaxExplainedSteps, Errors: 1})
	if err != nil {
		return err
	}
	var all []view
	for i := range tasks {
		all = append(all, viewsOf(ctx, &tasks[i])...)
	}
	if err := s.queues(ctx, all); err != nil {
		return err
	}
	if err := s.children(ctx, all, levels-1); err != nil {
		return err
	}
	of := map[tasker.ID][]view{}
	for _, v := range all {
		of[v.task.TaskUUID] = append(of[v.task.TaskUUID], v)
	}
	for i, v := range views {
		if !v.waitsForChild() {
			continue
		}
		if below := of[*v.step.ChildUUID]; len(below) > 0 {
			views[i].child = &s.decideAll(ctx, below)[0]
		}
	}
	return nil
}

func (v view) sayChild() answer {
	c, id := v.child, *v.step.ChildUUID
	if c == nil {
		return say(tasker.NextServer, &v.step.StepSince, fmt.Sprintf("It goes on when that ends: tasker-ctl explain %s says what it waits for.", id), "waits for its child task %s", id)
	}
	if c.why.Reason == tasker.ConditionEnded {
		return say(tasker.NextServer, c.why.Since, "A server tells the step by itself, within a second; its log says what fails.",
			"waits for its child task %s, which %s%s", id, c.why.Message, setAside(v.step.StepFailures, v.step.StepRetryAt))
	}
	text := fmt.Sprintf("waits for its child task %s, which %s", id, c.why.Message)
	if c.step != nil && !c.ofTask {
		text = fmt.Sprintf("waits for its child task %s, whose step %s %s", id, c.step.StepName, c.why.Message)
	}
	return say(c.why.NextActor, c.why.Since, c.why.Remedy, "%s", text)
}
