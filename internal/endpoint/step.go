package endpoint

import (
	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/overload"
)

// Steps.
var (
	ListSteps = Of[None, None, []tasker.Step]{
		Method: "GET", Path: taskPath + "/workflow_steps", ID: "listSteps", Class: overload.Reads, Needs: access.ReadTasks, Tag: "steps",
		Summary: "List the steps of a task with their readiness",
	}

	GetStep = Of[None, None, tasker.Step]{
		Method: "GET", Path: stepPath, ID: "getStep", Class: overload.Reads, Needs: access.ReadTasks, Tag: "steps",
		Summary: "Get a step with its readiness",
		About:   "{step} is a UUID or a name, such as refund[17] for an item.",
	}

	ListStepItems = Of[tasker.MapItemFilter, None, apiv1.StepItemList]{
		Method: "GET", Path: taskPath + "/workflow_steps/{step}/items", ID: "listStepItems", Class: overload.Reads, Needs: access.ReadTasks, Tag: "steps",
		Summary: "List the items of a map step in order",
		About:   "{step} is a UUID or a name. A page with large documents ends early; next is the cursor of the next page.",
	}

	OperateStep = Of[None, apiv1.StepAction, tasker.Step]{
		Method: "PATCH", Path: stepPath, ID: "operateStep", Class: overload.Operations, Needs: access.OperateSteps, Tag: "steps",
		Summary: "Reset, resolve or complete a step manually",
		About: "For operators. {step} is a UUID or a name. The task continues in the same transaction; the response is the step after the action. " +
			"If the state of the step or task does not allow the action, the response is a CONFLICT whose details contain task_state, step_state, allowed_actions " +
			"and needs_interrupt. A queued or claimed step requires interrupt. " +
			"With an Idempotency-Key a repeated request changes nothing and returns the current step.",
		Keyed: true,
	}

	ListStepTransitions = Of[apiv1.HistoryPage, None, []tasker.Transition]{
		Method: "GET", Path: stepPath + "/transitions", ID: "listStepTransitions", Class: overload.Reads, Needs: access.ReadTasks, Tag: "steps",
		Summary: "List the history of a step, oldest first",
	}

	CompleteExternalStep = Of[None, apiv1.Completion, tasker.Step]{
		Method: "POST", Path: taskPath + "/workflow_steps/{step}/completion", ID: "completeExternalStep", Class: overload.Reports, Needs: access.CompleteSteps, Tag: "steps",
		Summary: "Report the outcome of an external step",
		About: "For the system that the step waits for. {step} is a UUID or a name, so a caller who knows the task needs no other request. " +
			"Safe to repeat; a different outcome is a CONFLICT.",
		Repeatable: true,
	}

	GetStepResult = Of[None, None, Document]{
		Method: "GET", Path: taskPath + "/results/{step}", ID: "getStepResult", Class: overload.Reports, Needs: access.ReadPayloads, Tag: "steps",
		Summary: "Get the result of a step",
		About: "For workers whose claim has dependency_result_refs, and for operators. {step} is a UUID or a name. " +
			"The response is the bare document. A step without a result is NOT_FOUND. A result never changes, so the ETag is always valid.",
		Statuses: unchanged,
	}

	GetItemResults = Of[apiv1.ItemResultQuery, None, apiv1.ItemResults]{
		Method: "GET", Path: taskPath + "/results/{step}/items", ID: "getItemResults", Class: overload.Reports, Needs: access.ReadPayloads, Tag: "steps",
		Summary: "List the results of the items of a map step in order",
		About: "For workers that depend on a map step whose result has results_truncated, and for operators. {step} is a UUID or a name. " +
			"The size of a page is limited; next is the cursor of the next page.",
	}
)

// Human steps.
var (
	CreateAnswerLink = Of[None, apiv1.CreateAnswerLink, apiv1.NewAnswerLink]{
		Method: "POST", Path: stepPath + "/answer_links", ID: "createAnswerLink", Class: overload.Operations, Needs: access.OperateSteps, Tag: "inbox",
		Summary: "Create a link with which the assignee answers an external step without signing in",
		About: "The response contains its token, which cannot be shown again. It is valid for one answer, until it expires, while the step waits and its assignee does not change. " +
			"Anyone with the link can answer. A step that does not wait or has no assignee is a CONFLICT, and so are too many links.",
		Statuses: created,
	}

	ListAnswerLinks = Of[None, None, apiv1.AnswerLinks]{
		Method: "GET", Path: stepPath + "/answer_links", ID: "listAnswerLinks", Class: overload.Reads, Needs: access.ReadTasks, Tag: "inbox",
		Summary: "List the answer links of a step, newest first, without their tokens",
	}

	RevokeAnswerLink = Of[None, None, tasker.AnswerLink]{
		Method: "DELETE", Path: stepPath + "/answer_links" + "/{link_uuid}", ID: "revokeAnswerLink", Class: overload.Operations, Needs: access.OperateSteps, Tag: "inbox",
		Summary:    "Revoke an answer link",
		About:      "Safe to repeat. A link that was used is a CONFLICT.",
		Repeatable: true,
	}

	ListInbox = Of[apiv1.InboxQuery, None, apiv1.Inbox]{
		Method: "GET", Path: "/v1/inbox", ID: "listInbox", Class: overload.Reads, Needs: access.ReadTasks, Tag: "inbox",
		Summary: "List human steps, earliest due first",
		About:   "An external step is listed while it waits, if its template has an assignee or a form, or if it was assigned. Steps without a timeout come last.",
	}

	GetAssignee = Of[None, None, tasker.HumanStepDetail]{
		Method: "GET", Path: stepPath + "/assignee", ID: "getAssignee", Class: overload.Reads, Needs: access.ReadTasks, Tag: "inbox",
		Summary: "Get the assignee, the form and the assignment history of a human step",
	}

	AssignStep = Of[None, apiv1.AssignStep, tasker.HumanStep]{
		Method: "PUT", Path: stepPath + "/assignee", ID: "assignStep", Class: overload.Operations, Needs: access.OperateSteps, Tag: "inbox",
		Summary: "Assign an external step that waits",
		About: "For operators. Safe to repeat. Callers with steps:complete may answer for any assignee. " +
			"A step that does not wait for an answer is a CONFLICT. A reset keeps the assignee.",
		Repeatable: true,
	}
)
