package endpoint

import (
	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/overload"
)

// Operations: bulk repair of investigations.
var (
	PlanOperation = Of[None, apiv1.PlanOperation, apiv1.Operation]{
		Method: "POST", Path: "/v1/operations", ID: "planOperation", Class: overload.Operations, Needs: access.OperateSteps, Tag: "operations",
		Summary: "Plan an operation and freeze its steps",
		About: "For operators. The failed step of each selected open investigation becomes an item, unless the caller lacks the permission to operate steps in its " +
			"namespace. Nothing else changes until the start; a plan that is not started within 30 minutes is aborted. If another operation " +
			"has some of the steps, the CONFLICT contains its id, its planner and their number. " +
			"With an Idempotency-Key a repeated request returns 200 with the operation; a different request with the same key is a CONFLICT.",
		Statuses: createdOrOK, MaxBody: 8 << 20, Keyed: true,
	}

	ListOperations = Of[tasker.OperationFilter, None, apiv1.OperationList]{
		Method: "GET", Path: "/v1/operations", ID: "listOperations", Class: overload.Reads, Needs: access.ReadInvestigations, Tag: "operations",
		Summary: "List operations, newest first",
		About:   "Operations with items in namespaces that the caller cannot see are omitted.",
	}

	GetOperation = Of[None, None, apiv1.Operation]{
		Method: "GET", Path: operationPath, ID: "getOperation", Class: overload.Reads, Needs: access.ReadInvestigations, Tag: "operations",
		Summary: "Get an operation with the number of its items by state",
	}

	ListOperationItems = Of[tasker.OperationItemFilter, None, apiv1.OperationItemList]{
		Method: "GET", Path: operationPath + "/items", ID: "listOperationItems", Class: overload.Reads, Needs: access.ReadInvestigations, Tag: "operations",
		Summary: "List the items of an operation in order",
	}

	DryRunOperation = Of[None, apiv1.DryRunOperation, tasker.DryRun]{
		Method: "POST", Path: operationPath + "/dry-run", ID: "dryRunOperation", Class: overload.Operations, Needs: access.OperateSteps, Tag: "operations",
		Summary: "Simulate an operation: apply its action and roll it back",
		About: "For operators. It applies the action to the planned items, 200 at a time, and rolls each batch back. " +
			"It ends after limit items or 20 seconds; next is the cursor of the next request.",
		Repeatable: true,
	}

	StartOperation = Of[None, apiv1.StartOperation, apiv1.Operation]{
		Method: "POST", Path: operationPath + "/start", ID: "startOperation", Class: overload.Operations, Needs: access.OperateSteps, Tag: "operations",
		Summary:    "Start an operation after reviewing its plan",
		About:      "For operators. Safe to repeat. A plan that expired, was aborted or has a different digest is a CONFLICT.",
		Repeatable: true,
	}

	ResumeOperation = Of[None, apiv1.ResumeOperation, apiv1.Operation]{
		Method: "POST", Path: operationPath + "/resume", ID: "resumeOperation", Class: overload.Operations, Needs: access.OperateSteps, Tag: "operations",
		Summary: "Resume a paused operation, repeating its wave",
		About: "For operators. Safe to repeat; an operation that has ended is a CONFLICT. tolerate changes how many steps of a wave may fail. tolerate_cause ignores " +
			"failures of the causes for which the operation is paused from then on; it is a CONFLICT if the pause is not about failures.",
		Repeatable: true,
	}

	PauseOperation = Of[None, apiv1.ChangeOperation, apiv1.Operation]{
		Method: "POST", Path: operationPath + "/pause", ID: "pauseOperation", Class: overload.Operations, Needs: access.OperateSteps, Tag: "operations",
		Summary:    "Pause an operation: nothing more is released; what is released continues",
		About:      "For operators. Safe to repeat; an operation that ended differently is a CONFLICT.",
		Repeatable: true,
	}

	AbortOperation = Of[None, apiv1.ChangeOperation, apiv1.Operation]{
		Method: "POST", Path: operationPath + "/abort", ID: "abortOperation", Class: overload.Operations, Needs: access.OperateSteps, Tag: "operations",
		Summary:    "Abort an operation: nothing more is released; what is released continues",
		About:      "For operators. Safe to repeat; an operation that ended differently is a CONFLICT.",
		Repeatable: true,
	}
)
