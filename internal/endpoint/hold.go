package endpoint

import (
	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/overload"
)

// Holds.
var (
	BeginHold = Of[None, apiv1.BeginHold, tasker.Hold]{
		Method: "POST", Path: "/v1/holds", ID: "beginHold", Class: overload.Operations, Needs: access.OperateSteps, Tag: "holds",
		Summary: "Hold the enqueued steps of a scope, so that workers cannot claim them",
		About: "For operators. After the response no server assigns a step of the scope. Claimed steps continue. Held steps use no attempts, and their queue timeout and staleness are " +
			"suspended. If a hold with the same scope exists, the details of the CONFLICT contain its id.",
		Statuses: created,
	}

	ListHolds = Of[tasker.HoldFilter, None, apiv1.HoldList]{
		Method: "GET", Path: "/v1/holds", ID: "listHolds", Class: overload.Reads, Needs: access.ReadTasks, Tag: "holds",
		Summary: "List holds, newest first",
	}

	GetHold = Of[None, None, tasker.HoldDetail]{
		Method: "GET", Path: holdPath, ID: "getHold", Class: overload.Reads, Needs: access.ReadTasks, Tag: "holds",
		Summary: "Get a hold with its history and the outcomes of its probes and waves",
	}

	ProbeHold = Of[None, apiv1.ProbeHold, tasker.Hold]{
		Method: "POST", Path: holdPath + "/probe", ID: "probeHold", Class: overload.Operations, Needs: access.OperateSteps, Tag: "holds",
		Summary: "Release one step of an active hold as a probe",
		About:   "For operators. A server releases it within a second. If a probe is in progress, or the hold has no steps, the response is a CONFLICT.",
	}

	ExtendHold = Of[None, apiv1.ExtendHold, tasker.Hold]{
		Method: "POST", Path: holdPath + "/extend", ID: "extendHold", Class: overload.Operations, Needs: access.OperateSteps, Tag: "holds",
		Summary: "Extend an active hold, or assign it to another owner",
		About:   "For operators. A hold that is releasing or has ended is a CONFLICT.",
	}

	ReleaseHold = Of[None, apiv1.ReleaseHold, tasker.Hold]{
		Method: "POST", Path: holdPath + "/release", ID: "releaseHold", Class: overload.Operations, Needs: access.OperateSteps, Tag: "holds",
		Summary: "Release the steps of a hold in waves",
		About: "For operators. Each wave starts after fewer than a tenth of the previous one failed; otherwise the hold becomes active again. waves=[] releases all steps at once, " +
			"even during a release. Otherwise a hold that is releasing or has ended is a CONFLICT.",
	}
)
