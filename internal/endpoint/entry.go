package endpoint

import (
	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/overload"
)

// Investigations.
var (
	ListEntries = Of[tasker.EntryFilter, None, []tasker.Entry]{
		Method: "GET", Path: "/v1/dlq", ID: "listEntries", Class: overload.Reads, Needs: access.ReadInvestigations, Tag: "dlq",
		Summary: "List investigations, newest first",
	}

	GetEntryOfTask = Of[None, None, tasker.Entry]{
		Method: "GET", Path: "/v1/dlq/task/{task_uuid}", ID: "getEntryOfTask", Class: overload.Reads, Needs: access.ReadInvestigations, Tag: "dlq",
		Summary: "Get the newest investigation of a task, with its snapshot",
	}

	OpenEntry = Of[None, apiv1.OpenEntry, tasker.Entry]{
		Method: "POST", Path: "/v1/dlq/task/{task_uuid}", ID: "openEntry", Class: overload.Operations, Needs: access.UpdateInvestigations, Tag: "dlq",
		Summary: "Open an investigation of a task manually",
		About: "The task does not change. If an investigation is open, the CONFLICT contains its dlq_entry_uuid. " +
			"With an Idempotency-Key a repeated request changes nothing and returns the newest investigation of the task.",
		Statuses: created, Keyed: true,
	}

	GetEntry = Of[apiv1.EntryQuery, None, tasker.Entry]{
		Method: "GET", Path: "/v1/dlq/entry/{dlq_entry_uuid}", ID: "getEntry", Class: overload.Reads, Needs: access.ReadInvestigations, Tag: "dlq",
		Summary: "Get an investigation with its snapshot and history",
	}

	UpdateEntry = Of[None, apiv1.UpdateEntry, apiv1.UpdatedEntry]{
		Method: "PATCH", Path: "/v1/dlq/entry/{dlq_entry_uuid}", ID: "updateEntry", Class: overload.Operations, Needs: access.UpdateInvestigations, Tag: "dlq",
		Summary: "Annotate or resolve an investigation",
		About: "Absent fields do not change. Safe to repeat; an investigation with a different resolution is a CONFLICT. " +
			"With an Idempotency-Key a repeated request is recorded once.",
		Keyed: true,
	}

	GetEntryStats = Of[None, None, []tasker.EntryStats]{
		Method: "GET", Path: "/v1/dlq/stats", ID: "getEntryStats", Class: overload.Reads, Needs: access.ReadInvestigations, Tag: "dlq",
		Summary: "Count investigations by reason",
	}

	GetQueue = Of[tasker.InvestigationFilter, None, []tasker.InvestigationQueueEntry]{
		Method: "GET", Path: "/v1/dlq/investigation-queue", ID: "getQueue", Class: overload.Reads, Needs: access.ReadInvestigations, Tag: "dlq",
		Summary: "List open investigations, most urgent first",
	}

	GetRelatedEntries = Of[apiv1.RelatedQuery, None, tasker.RelatedEntries]{
		Method: "GET", Path: "/v1/dlq/entry/{dlq_entry_uuid}/related", ID: "getRelatedEntries", Class: overload.Reads, Needs: access.ReadInvestigations, Tag: "dlq",
		Summary: "List other investigations of the same case, with the outcomes of ended ones",
	}

	GetEvidenceFile = Of[None, None, tasker.EvidenceFile]{
		Method: "GET", Path: "/v1/dlq/entry/{dlq_entry_uuid}/evidence", ID: "getEvidenceFile", Class: overload.Reads, Needs: access.ReadInvestigations, Also: access.ReadPayloads, Tag: "dlq",
		Summary: "Export an investigation as one file: the failed step, the inputs of its handler, its failures and its history",
		About: "Secrets are removed; redacted lists their locations in input. " +
			"docs/reference/evidence-file.schema.json is the schema of the file.",
	}

	GetEntryCounts = Of[apiv1.EntryCountQuery, None, []tasker.EntryCount]{
		Method: "GET", Path: "/v1/dlq/counts", ID: "getEntryCounts", Class: overload.Reads, Needs: access.ReadInvestigations, Tag: "dlq",
		Summary: "Count opened, ended, verified and open investigations over time, oldest interval first",
		About:   "The last interval is the current one. At most 100,000 investigations are counted, newest first.",
	}

	GetEntryTimes = Of[apiv1.EntryTimesQuery, None, tasker.ResolutionTimes]{
		Method: "GET", Path: "/v1/dlq/times", ID: "getEntryTimes", Class: overload.Reads, Needs: access.ReadInvestigations, Tag: "dlq",
		Summary: "Get the time until investigations were acknowledged, owned, repaired, verified and resolved",
		About:   "Each case counts once, with the median of its investigations. At most 10,000 ended investigations are included, newest first.",
	}

	GetStaleness = Of[tasker.StalenessFilter, None, []tasker.StaleTask]{
		Method: "GET", Path: "/v1/dlq/staleness", ID: "getStaleness", Class: overload.Reads, Needs: access.ReadTasks, Tag: "dlq",
		Summary: "List running tasks by staleness: stale, warning, healthy",
	}
)
