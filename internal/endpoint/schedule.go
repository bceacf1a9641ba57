package endpoint

import (
	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/overload"
)

// Schedules.
var (
	ListSchedules = Of[tasker.ScheduleFilter, None, apiv1.ScheduleList]{
		Method: "GET", Path: "/v1/schedules", ID: "listSchedules", Class: overload.Reads, Needs: access.ReadTasks, Tag: "schedules",
		Summary: "List schedules by namespace and name, with the results of their latest tasks",
	}

	GetSchedule = Of[apiv1.ScheduleQuery, None, apiv1.ScheduleDetail]{
		Method: "GET", Path: schedulePath, ID: "getSchedule", Class: overload.Reads, Needs: access.ReadTasks, Tag: "schedules",
		Summary: "Get a schedule with its next firing times, its latest firings and its history",
	}

	ListFirings = Of[tasker.FiringFilter, None, apiv1.FiringList]{
		Method: "GET", Path: schedulePath + "/firings", ID: "listFirings", Class: overload.Reads, Needs: access.ReadTasks, Tag: "schedules",
		Summary: "List the firings of a schedule, newest first",
		About:   "Each past firing time belongs to one firing of the kind clock; consecutive ones without a task for the same reason share one. Firings are kept for 30 days.",
	}

	CreateSchedule = Of[None, apiv1.CreateSchedule, apiv1.Schedule]{
		Method: "POST", Path: "/v1/schedules", ID: "createSchedule", Class: overload.Operations, Needs: access.WriteSchedules, Tag: "schedules",
		Summary: "Create a schedule",
		About: "For developers. The first firing time is the next one of the rule. If no task could be created now, because of the template or the context, the response is INVALID. " +
			"A name that exists in the namespace is a CONFLICT, so repeating is safe.",
		Statuses: created,
	}

	UpdateSchedule = Of[None, apiv1.UpdateSchedule, apiv1.Schedule]{
		Method: "PUT", Path: schedulePath, ID: "updateSchedule", Class: overload.Operations, Needs: access.WriteSchedules, Tag: "schedules",
		Summary: "Update the rule, template or context of a schedule",
		About:   "For developers. Safe to repeat without a revision. The body replaces the whole specification. Firing times until now follow the previous rule, later ones the new rule.",
	}

	DeleteSchedule = Of[apiv1.ChangeQuery, None, apiv1.Schedule]{
		Method: "DELETE", Path: schedulePath, ID: "deleteSchedule", Class: overload.Operations, Needs: access.WriteSchedules, Tag: "schedules",
		Summary: "Delete a schedule but not its tasks",
		About:   "For developers. Its firings are kept for 30 days.",
	}

	PauseSchedule = Of[None, apiv1.PauseSchedule, apiv1.Schedule]{
		Method: "POST", Path: schedulePath + "/pause", ID: "pauseSchedule", Class: overload.Operations, Needs: access.OperateSchedules, Tag: "schedules",
		Summary: "Pause a schedule, until a time or until it is resumed",
		About:   "For operators. Safe to repeat. Firing times during the pause create no tasks; one firing records them.",
	}

	ResumeSchedule = Of[None, apiv1.ChangeSchedule, apiv1.Schedule]{
		Method: "POST", Path: schedulePath + "/resume", ID: "resumeSchedule", Class: overload.Operations, Needs: access.OperateSchedules, Tag: "schedules",
		Summary: "Resume a schedule",
		About:   "For operators. A schedule that is not paused is a CONFLICT.",
	}

	TriggerSchedule = Of[None, apiv1.ChangeSchedule, apiv1.Firing]{
		Method: "POST", Path: schedulePath + "/trigger", ID: "triggerSchedule", Class: overload.Operations, Needs: access.OperateSchedules, Tag: "schedules",
		Summary:  "Run a schedule now, in addition to its firing times",
		About:    "For operators. Works for paused schedules and while a task is open. With an Idempotency-Key a repeated request creates no task and returns the first firing.",
		Statuses: created, Keyed: true,
	}

	BackfillSchedule = Of[None, apiv1.BackfillSchedule, apiv1.Backfill]{
		Method: "POST", Path: schedulePath + "/backfill", ID: "backfillSchedule", Class: overload.Operations, Needs: access.OperateSchedules, Tag: "schedules",
		Summary: "Create tasks for past firing times, or list these",
		About:   "For operators. Safe to repeat. Up to 500 firing times from from to to; all tasks are created, or none. A firing time never gets a second task. The overlap policy does not apply: the tasks start at once.",
	}
)
