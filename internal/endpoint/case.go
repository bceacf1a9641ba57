package endpoint

import (
	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/overload"
)

// Cases.
var (
	ListCases = Of[tasker.CaseFilter, None, apiv1.CaseList]{
		Method: "GET", Path: "/v1/cases", ID: "listCases", Class: overload.Reads, Needs: access.ReadInvestigations, Tag: "cases",
		Summary: "List cases of open investigations, most costly first",
		About: "The filters of the investigation queue select the counted investigations. To list the investigations of a case, use the parameter case of the queue. " +
			"case_state=resolved lists cases without open investigations, last resolved first.",
	}

	GetCase = Of[None, None, tasker.CaseDetail]{
		Method: "GET", Path: casePath, ID: "getCase", Class: overload.Reads, Needs: access.ReadInvestigations, Tag: "cases",
		Summary: "Get a case with its counts, samples, differences, outcomes and history",
	}

	WhyCase = Of[None, None, tasker.CaseGrouping]{
		Method: "GET", Path: casePath + "/why", ID: "whyCase", Class: overload.Reads, Needs: access.ReadInvestigations, Tag: "cases",
		Summary: "Explain how a case was grouped: its fingerprint, and the ignored parts of messages",
	}

	ChangesOfCase = Of[None, None, tasker.CaseComparison]{
		Method: "GET", Path: casePath + "/changes", ID: "changesOfCase", Class: overload.Reads, Needs: access.ReadInvestigations, Tag: "cases",
		Summary: "Compare the failures of a case with successes of the same step, and show its impact",
	}

	UpdateCase = Of[None, apiv1.UpdateCase, tasker.Case]{
		Method: "PATCH", Path: casePath, ID: "updateCase", Class: overload.Operations, Needs: access.UpdateInvestigations, Tag: "cases",
		Summary: "Assign a case, snooze it, or add a note",
		About:   "Absent fields do not change. Tasks and investigations do not change.",
	}

	MergeCase = Of[None, apiv1.MergeCase, tasker.Case]{
		Method: "POST", Path: casePath + "/merge", ID: "mergeCase", Class: overload.Operations, Needs: access.UpdateInvestigations, Tag: "cases",
		Summary: "Merge a case into another",
		About:   "Both must be in the same namespace. Investigations do not change, and unmerge reverts it exactly.",
	}

	UnmergeCase = Of[None, apiv1.UnmergeCase, tasker.Case]{
		Method: "POST", Path: casePath + "/unmerge", ID: "unmergeCase", Class: overload.Operations, Needs: access.UpdateInvestigations, Tag: "cases",
		Summary: "Undo a merge",
	}

	SplitCase = Of[None, apiv1.SplitCase, apiv1.CaseSplit]{
		Method: "POST", Path: casePath + "/split", ID: "splitCase", Class: overload.Operations, Needs: access.UpdateInvestigations, Tag: "cases",
		Summary:  "Split a case by the text of a field",
		About:    "Current and future failures with the text get their own case within seconds. To undo the split, merge that case into this one.",
		Statuses: accepted,
	}
)

// Incidents.
var (
	ListIncidents = Of[tasker.IncidentFilter, None, apiv1.IncidentList]{
		Method: "GET", Path: "/v1/incidents", ID: "listIncidents", Class: overload.Reads, Needs: access.ReadInvestigations, Tag: "incidents",
		Summary: "List incidents: cases of one namespace that were notified together, newest first",
	}

	GetIncident = Of[None, None, tasker.IncidentDetail]{
		Method: "GET", Path: incidentPath, ID: "getIncident", Class: overload.Reads, Needs: access.ReadInvestigations, Tag: "incidents",
		Summary: "Get an incident with its cases and its notifications",
	}

	TryMessage = Of[None, apiv1.TryMessage, apiv1.TriedMessage]{
		Method: "POST", Path: "/v1/messages/test", ID: "tryMessage", Class: overload.Operations, Needs: access.ResendEvents, Tag: "incidents",
		Summary: "Send a test notification",
		About:   "For operators. It goes to the sinks of the first matching route, as message.test. It is recorded in the audit log.",
	}
)

// Reports.
var (
	ReportOfCase = Of[apiv1.ReportQuery, None, tasker.IncidentReport]{
		Method: "GET", Path: casePath + "/report", ID: "reportOfCase", Class: overload.Reads, Needs: access.ReadInvestigations, Tag: "reports",
		Summary: "Get the report of a case: how long tasks were stuck, who acted, and the outcome",
		About: "It is computed from the stored records, of at most 100,000 investigations. Without payloads:read error texts are omitted. " +
			"With format=md the response is text/markdown.",
	}

	ReportOfIncident = Of[apiv1.ReportQuery, None, tasker.IncidentReport]{
		Method: "GET", Path: incidentPath + "/report", ID: "reportOfIncident", Class: overload.Reads, Needs: access.ReadInvestigations, Tag: "reports",
		Summary: "Get the report of an incident: the investigations of its cases that were open during it",
		About: "It is computed from the stored records, of at most 100,000 investigations. Without payloads:read error texts are omitted. " +
			"With format=md the response is text/markdown.",
	}

	ReportOfTime = Of[apiv1.TimeReportQuery, None, tasker.IncidentReport]{
		Method: "GET", Path: "/v1/reports", ID: "reportOfTime", Class: overload.Reads, Needs: access.ReadInvestigations, Tag: "reports",
		Summary: "Get the report of the investigations that were opened in a time range",
		About: "It is computed from the stored records, of at most 100,000 investigations. Without payloads:read error texts are omitted. " +
			"With format=md the response is text/markdown.",
	}
)
