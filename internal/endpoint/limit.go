package endpoint

import (
	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/overload"
)

// Limits.
var (
	ListLimits = Of[tasker.LimitFilter, None, apiv1.LimitList]{
		Method: "GET", Path: "/v1/limits", ID: "listLimits", Class: overload.Reads, Needs: access.ReadWorkers, Tag: "limits",
		Summary: "List limits with their usage, by namespace, kind and name",
	}

	SetLimit = Of[None, apiv1.SetLimit, apiv1.Limit]{
		Method: "PUT", Path: "/v1/limits", ID: "setLimit", Class: overload.Operations, Needs: access.OperateSteps, Tag: "limits",
		Summary: "Set how many steps may run at once, or start per second",
		About: "For operators of the namespace; the limit of the server is for administrators of all namespaces. Safe to repeat. " +
			"It applies to all later claims on every server; running steps continue. It is recorded in the audit log.",
		Repeatable: true,
	}

	DeleteLimit = Of[apiv1.DeleteLimitQuery, None, None]{
		Method: "DELETE", Path: "/v1/limits", ID: "deleteLimit", Class: overload.Operations, Needs: access.OperateSteps, Tag: "limits",
		Summary: "Delete a limit; steps that wait for it are enqueued again",
		About:   "Requires the permissions of setLimit. A limit that templates assign is a CONFLICT: change its value instead. It is recorded in the audit log.",
	}
)
