package endpoint

import (
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/overload"
)

// Tasks.
var (
	CreateTask = Of[None, apiv1.CreateTask, tasker.Task]{
		Method: "POST", Path: "/v1/tasks", ID: "createTask", Class: overload.Creates, Needs: access.CreateTasks, Tag: "tasks",
		Summary: "Create a task",
		About: "With an idempotency_key it is safe to repeat: the same request returns 200 with the existing task; " +
			"a different request with the same key is a CONFLICT.",
		Statuses: createdOrOK,
	}

	CreateTasks = Of[None, []apiv1.CreateTask, apiv1.CreatedTasks]{
		Method: "POST", Path: "/v1/tasks/bulk", ID: "createTasks", Class: overload.BulkCreates, Needs: access.CreateTasks, Tag: "tasks",
		Summary:  "Create up to 1000 tasks, all or none",
		About:    "Elements with an idempotency_key are safe to repeat. Returns 200 if no task is new.",
		Statuses: createdOrOK,
	}

	GetTask = Of[apiv1.TaskQuery, None, tasker.Task]{
		Method: "GET", Path: taskPath, ID: "getTask", Class: overload.Reads, Needs: access.ReadTasks, Tag: "tasks",
		Summary: "Get a task with its steps, waiting up to wait_ms until it is settled",
		About: "With wait_ms the response is sent when the task has ended (complete, resolved_manually or cancelled), has an open investigation, or has permanently failed, and otherwise after wait_ms. " +
			"It has the task as it is then, so repeat the request until the task is settled. The server may respond early: pause before the next request.",
		Wait: time.Minute,
	}

	CancelTask = Of[apiv1.CancelTaskQuery, None, tasker.Task]{
		Method: "DELETE", Path: taskPath, ID: "cancelTask", Class: overload.Operations, Needs: access.CancelTasks, Tag: "tasks",
		Summary: "Cancel a task and its unfinished steps",
		About: "Safe to repeat. A complete task is a CONFLICT. With compensate=true completed steps are compensated in reverse order, where their template declares how: " +
			"the task is in the phase compensating, and is cancelled afterwards; see phase and outcome. Cancelling again without it stops the compensation.",
		Repeatable: true,
	}

	ListTaskTransitions = Of[apiv1.HistoryPage, None, []tasker.Transition]{
		Method: "GET", Path: taskPath + "/transitions", ID: "listTaskTransitions", Class: overload.Reads, Needs: access.ReadTasks, Tag: "tasks",
		Summary: "List the history of a task, oldest first",
	}

	GetTaskTree = Of[None, None, tasker.TaskTree]{
		Method: "GET", Path: taskPath + "/tree", ID: "getTaskTree", Class: overload.Reads, Needs: access.ReadTasks, Tag: "tasks",
		Summary: "Get a task with its parent and child tasks",
		About:   "The topmost task is first, each task precedes its children, and there are up to ten levels. more_children is set if a task has more children than the response contains.",
	}

	GetTaskContext = Of[None, None, Document]{
		Method: "GET", Path: taskPath + "/context", ID: "getTaskContext", Class: overload.Reports, Needs: access.ReadPayloads, Tag: "tasks",
		Summary:  "Get the context of a task",
		About:    "For workers whose claim has context_omitted. The response is the bare document. A context never changes, so the ETag is always valid.",
		Statuses: unchanged,
	}

	ListTasks = Of[tasker.TaskFilter, None, apiv1.TaskList]{
		Method: "GET", Path: "/v1/tasks", ID: "listTasks", Class: overload.Reads, Needs: access.ReadTasks, Tag: "tasks",
		Summary: "List tasks, newest first",
	}

	CancelTasks = Of[apiv1.TaskSelection, apiv1.CancelTasks, tasker.CancelBatch]{
		Method: "POST", Path: "/v1/tasks/cancel", ID: "cancelTasks", Class: overload.Operations, Needs: access.CancelTasks, Tag: "tasks",
		Summary: "Cancel a batch of the open tasks that match a filter",
		About: "Up to 100 tasks, each in its own transaction, for up to ten seconds. Repeat the request while more is set. Tasks that are being compensated do not change. " +
			"Filters with only a status and times are rejected. With compensate, completed steps are compensated, where their template declares how. Safe to repeat.",
		Repeatable: true,
	}

	ListAttributes = Of[apiv1.NamespaceQuery, None, apiv1.AttributeList]{
		Method: "GET", Path: "/v1/attributes", ID: "listAttributes", Class: overload.Reads, Needs: access.ReadTasks, Tag: "tasks",
		Summary: "List search attributes by namespace and name, as declared by templates",
	}

	ChangeDue = Of[None, apiv1.ChangeDue, tasker.Task]{
		Method: "PUT", Path: taskPath + "/due", ID: "changeDue", Class: overload.Operations, Needs: access.OperateSteps, Tag: "tasks",
		Summary: "Set the due time of a task or of one of its steps",
		About: "For operators. It replaces the due time of the request or the template; notifications follow the new one. It is recorded in the history of the task. " +
			"A finished task or step is a CONFLICT.",
		Repeatable: true,
	}

	ChangeVersion = Of[None, apiv1.ChangeVersion, tasker.VersionChange]{
		Method: "POST", Path: taskPath + "/change_version", ID: "changeVersion", Class: overload.Operations, Needs: access.OperateSteps, Tag: "tasks",
		Summary: "Move an open task to another version of its template",
		About: "In one transaction: finished and claimed steps do not change; pending, enqueued and failed steps take their definition from the new version; " +
			"new steps are added, and removed steps are deleted if they have not started. If the move is not possible, the task does not change and the response is a CONFLICT with the change and all reasons as its details; " +
			"with dry_run it is 200. Safe to repeat.",
		Repeatable: true,
	}

	FollowTask = Of[apiv1.TaskEventQuery, None, apiv1.TaskEvent]{
		Method: "GET", Path: taskPath + "/events", ID: "followTask", Class: overload.Streams, Needs: access.ReadTasks, Tag: "tasks",
		Summary: "Stream the transitions of a task and its steps until the task ends",
		About: "Server-sent events: event is the kind, data the TaskEvent, id what to resume from with the header Last-Event-ID. " +
			"The first event is the state of the task, the last one its end. In between are the transitions, in order for each step. " +
			"After a reconnect some transitions may be repeated: transition_id identifies them, for the task and for its steps. " +
			"A comment keeps an idle connection open. A client that does not read is disconnected, and may resume.",
		Quiet: true, Gives: "text/event-stream",
	}

	ListTaskRequests = Of[tasker.TaskRequestFilter, None, apiv1.TaskRequestList]{
		Method: "GET", Path: "/v1/task-requests", ID: "listTaskRequests", Class: overload.Reads, Needs: access.ReadTasks, Tag: "tasks",
		Summary: "List tasks that were requested in SQL and are not created, newest first",
		About:   "Requests of the SQL function tasker.create_task. A server creates their tasks within a second, or refuses a request and keeps it with the error.",
	}

	DeleteTaskRequest = Of[None, None, None]{
		Method: "DELETE", Path: "/v1/task-requests/{task_uuid}", ID: "deleteTaskRequest", Class: overload.Operations, Needs: access.CancelTasks, Tag: "tasks",
		Summary: "Dismiss a task that was requested in SQL",
		About:   "A pending request is withdrawn: its task is not created. It is recorded in the audit log.",
	}
)
