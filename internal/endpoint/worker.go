package endpoint

import (
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/overload"
)

// Workers and queues.
var (
	ListNamespaces = Of[None, None, apiv1.NamespaceList]{
		Method: "GET", Path: "/v1/namespaces", ID: "listNamespaces", Class: overload.Reads, Needs: access.ReadWorkers, Tag: "workers",
		Summary: "List namespaces with custom weights",
		About:   "A namespace that is not listed has weight 1.",
	}

	SetNamespace = Of[None, apiv1.SetNamespace, tasker.NamespaceWeight]{
		Method: "PUT", Path: "/v1/namespaces/{namespace}", ID: "setNamespace", Class: overload.Operations, Needs: access.Administer, Tag: "workers",
		Summary:    "Set the weight of a namespace: its share of workers that serve several namespaces",
		About:      "For administrators of all namespaces. Safe to repeat. All servers apply it within a second. It is recorded in the audit log.",
		Repeatable: true,
	}

	DeleteNamespace = Of[None, None, None]{
		Method: "DELETE", Path: "/v1/namespaces/{namespace}", ID: "deleteNamespace", Class: overload.Operations, Needs: access.Administer, Tag: "workers",
		Summary: "Reset a namespace to weight 1",
		About:   "For administrators of all namespaces. Its tasks do not change. It is recorded in the audit log.",
	}

	ListWorkers = Of[apiv1.Page, None, apiv1.WorkerList]{
		Method: "GET", Path: "/v1/workers", ID: "listWorkers", Class: overload.Reads, Needs: access.ReadWorkers, Tag: "workers",
		Summary: "List workers, latest heartbeat first",
	}

	RegisterWorker = Of[None, apiv1.RegisterWorker, apiv1.RegisteredWorker]{
		Method: "POST", Path: "/v1/workers", ID: "registerWorker", Class: overload.Claims, Needs: access.ActAsWorker, Tag: "workers",
		Summary:  "Register a worker",
		Statuses: created,
	}

	ClaimSteps = Of[None, apiv1.ClaimSteps, apiv1.ClaimedSteps]{
		Method: "POST", Path: workerPath + "/claims", ID: "claimSteps", Class: overload.Claims, Needs: access.ActAsWorker, Tag: "workers",
		Summary: "Claim steps, waiting up to wait_ms for them",
		MaxBody: 16 << 10, Wait: time.Minute, Repeatable: true,
	}

	TakeSteps = Of[None, apiv1.TakeSteps, apiv1.ClaimedSteps]{
		Method: "POST", Path: workerPath + "/take", ID: "takeSteps", Class: overload.Claims, Needs: access.ActAsWorker, Tag: "workers",
		Summary: "Claim the steps that the message broker announced",
		About: "Assigns those that are enqueued and that the worker can execute. All of their messages may then be acknowledged: " +
			"the others are claimed by other workers, or will be announced again.",
		Repeatable: true,
	}

	Heartbeat = Of[None, apiv1.Leases, apiv1.HeartbeatAnswer]{
		Method: "POST", Path: workerPath + "/heartbeat", ID: "heartbeat", Class: overload.Reports, Needs: access.ActAsWorker, Tag: "workers",
		Summary: "Renew the leases of running steps",
		About:   "Safe to repeat. Stop the work of lost leases.",
		MaxBody: 512 << 10, Quiet: true, Unmetered: true, Repeatable: true,
	}

	ReportResults = Of[None, apiv1.ReportResults, apiv1.ReportAnswer]{
		Method: "POST", Path: workerPath + "/results", ID: "reportResults", Class: overload.Reports, Needs: access.ActAsWorker, Tag: "workers",
		Summary: "Report outcomes of steps and optionally claim the next ones",
		About: "Safe to repeat: the same result is accepted but not applied twice. Each result is accepted or rejected individually. " +
			"A failure is accepted even if its error is malformed; values that cannot be stored are replaced.",
		Repeatable: true,
	}

	SaveCheckpoint = Of[None, apiv1.SaveCheckpoint, None]{
		Method: "POST", Path: workerPath + "/checkpoint", ID: "saveCheckpoint", Class: overload.Reports, Needs: access.ActAsWorker, Tag: "workers",
		Summary: "Save a checkpoint for later attempts of a step",
		About: "The value replaces the previous one and is part of later claims of the step. It does not renew the lease. Safe to repeat. " +
			"If the lease is lost, nothing is saved and the response is STALE_LEASE.",
		Repeatable: true,
	}

	ReleaseSteps = Of[None, apiv1.Leases, apiv1.Released]{
		Method: "POST", Path: workerPath + "/release", ID: "releaseSteps", Class: overload.Reports, Needs: access.ActAsWorker, Tag: "workers",
		Summary: "Release steps that were not started, without using an attempt",
	}

	DrainWorker = Of[None, None, tasker.Worker]{
		Method: "POST", Path: workerPath + "/drain", ID: "drainWorker", Class: overload.Operations, Needs: access.DrainWorkers, Tag: "workers",
		Summary: "Drain a worker: it gets no new steps, finishes its current ones and stops",
		About: "For operators, and for a worker that is shutting down. Safe to repeat; it cannot be undone. " +
			"The response to its next heartbeat notifies the worker.",
		Repeatable: true,
	}

	Leave = Of[None, None, None]{
		Method: "DELETE", Path: workerPath, ID: "leave", Class: overload.Reports, Needs: access.ActAsWorker, Tag: "workers",
		Summary:    "End the registration of a worker",
		Repeatable: true,
	}

	ListQueues = Of[apiv1.QueueQuery, None, []tasker.Queue]{
		Method: "GET", Path: "/v1/queues", ID: "listQueues", Class: overload.Reads, Needs: access.ReadWorkers, Tag: "workers",
		Summary: "List queues by namespace and handler: those without a live worker first, then by age",
		About:   "Empty queues are not listed.",
	}
)
