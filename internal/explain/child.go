package explain

import (
	"context"
	"fmt"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/postgres"
)

// maxChildren limits the child tasks that are explained on each level.
const maxChildren = 20

// loadChildren adds the explanation of the child task to each view whose step waits for one. It
// descends up to levels, with two statements per level.
func (s *Service) loadChildren(ctx context.Context, views []view, levels int) error {
	var ids []tasker.ID
	for _, v := range views {
		if v.waitsForChild() && len(ids) < maxChildren {
			ids = append(ids, *v.step.ChildUUID)
		}
	}
	if len(ids) == 0 || levels == 0 {
		return nil
	}
	_, all, err := s.loadViews(ctx, postgres.ExplainedTasks{Tasks: ids, Steps: tasker.MaxExplainedSteps, Errors: 1})
	if err != nil {
		return err
	}
	if err := s.loadChildren(ctx, all, levels-1); err != nil {
		return err
	}
	of := groupByTask(all)
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

func (v view) describeChild() explanation {
	c, id := v.child, *v.step.ChildUUID
	if c == nil {
		return newExplanation(tasker.NextServer, &v.step.StepSince, fmt.Sprintf("It goes on when that ends: tasker-ctl explain %s says what it waits for.", id), "waits for its child task %s", id)
	}
	if c.why.Reason == tasker.ConditionEnded {
		return newExplanation(tasker.NextServer, c.why.Since,
			"A server notifies the step within a second; otherwise see its log.",
			"waits for its child task %s, which %s%s", id, c.why.Message,
			describeDeferral(v.step.StepFailures, v.step.StepRetryAt))
	}
	text := fmt.Sprintf("waits for its child task %s, which %s", id, c.why.Message)
	if c.step != nil && !c.ofTask {
		text = fmt.Sprintf("waits for its child task %s, whose step %s %s", id, c.step.StepName, c.why.Message)
	}
	return newExplanation(c.why.NextActor, c.why.Since, c.why.Remedy, "%s", text)
}
