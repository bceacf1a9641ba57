package endpoint

import (
	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/overload"
)

// The server itself.
var (
	ListAudit = Of[apiv1.AuditQuery, None, apiv1.AuditList]{
		Method: "GET", Path: "/v1/audit", ID: "listAudit", Class: overload.Reads, Needs: access.Administer, Tag: "server",
		Summary: "List the audit log, newest first",
	}

	Health = Of[None, None, apiv1.Health]{
		Method: "GET", Path: "/health", ID: "health", Class: overload.Exempt, Public: true, Tag: "server",
		Summary: "Check that the server responds",
		Quiet:   true,
	}

	Live = Of[None, None, apiv1.Health]{
		Method: "GET", Path: "/health/live", ID: "live", Class: overload.Exempt, Public: true, Tag: "server",
		Summary: "Check liveness: restart the server if this does not respond",
		Quiet:   true,
	}

	Ready = Of[None, None, apiv1.Health]{
		Method: "GET", Path: "/health/ready", ID: "ready", Class: overload.Exempt, Public: true, Tag: "server",
		Summary: "Check readiness: do not route requests to the server while this returns 503",
		Quiet:   true,
	}

	Metrics = Of[None, None, string]{
		Method: "GET", Path: "/metrics", ID: "metrics", Class: overload.Exempt, Needs: access.ReadMetrics, Tag: "server",
		Summary: "Get the metrics of the server in Prometheus format",
		Gives:   "text/plain", Quiet: true,
	}

	Openapi = Of[None, None, map[string]any]{
		Method: "GET", Path: "/api-docs/openapi.json", ID: "openapi", Class: overload.Exempt, Public: true, Tag: "server",
		Summary: "Get this document",
		Quiet:   true,
	}
)

// Explanations.
var (
	Explain = Of[None, None, tasker.Explanation]{
		Method: "GET", Path: "/v1/explain/{id}", ID: "explain", Class: overload.Reads, Needs: access.ReadTasks, Tag: "explain",
		Summary: "Explain why something is not progressing: the condition, since when, what would unblock it, and who acts next",
		About: "The id is that of a task, step, investigation, case, operation or hold. Investigations, cases and operations also need investigations:read. " +
			"Without payloads:read error messages are omitted.",
	}

	ExplainQueue = Of[None, None, tasker.Explanation]{
		Method: "GET", Path: "/v1/explain/queue/{namespace}/{handler}", ID: "explainQueue", Class: overload.Reads, Needs: access.ReadWorkers, Tag: "explain",
		Summary: "Explain why the steps of a queue are waiting, with the live workers for it",
	}
)
