package endpoint

import (
	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/overload"
)

const aboutFeed = "Server-sent events: event is the topic, data the CloudEvent, id what to resume from. " +
	"A client that reconnects with the header Last-Event-ID receives each missed event exactly once, from any server of the installation. " +
	"An id without data is a position without a visible event. A comment keeps an idle connection open. " +
	"A reader that does not read is disconnected, and may resume; one that is slow holds up no other."

// Events and their delivery.
var (
	ListEmissions = Of[tasker.EmissionFilter, None, apiv1.EmissionList]{
		Method: "GET", Path: "/v1/dlq/emissions", ID: "listEmissions", Class: overload.Reads, Needs: access.ReadEvents, Tag: "emission",
		Summary: "List the deliveries of events to sinks, newest event first",
		About: "It reads only the database, so it works while sinks are down. Pages are ordered by position; " +
			"an event is never split between pages, so a page may exceed its limit by the number of sinks.",
	}

	GetEmission = Of[None, None, apiv1.EmittedEvent]{
		Method: "GET", Path: "/v1/dlq/emissions/{event_uuid}", ID: "getEmission", Class: overload.Reads, Needs: access.ReadEvents, Tag: "emission",
		Summary: "Get an event with its data and its delivery to each sink",
	}

	ReEmit = Of[None, apiv1.ReEmit, apiv1.ReEmitted]{
		Method: "POST", Path: "/v1/dlq/emissions/re-emit", ID: "reEmit", Class: overload.Operations, Needs: access.ResendEvents, Tag: "emission",
		Summary: "Redeliver an event, or a range of positions",
		About: "For operators. Receivers recognize duplicates by the id of the event. It is recorded in the audit log. " +
			"A request covers up to 10000 events; next_from_position is the start of the next request. " +
			"With an Idempotency-Key a repeated request sends nothing and returns 0 emissions.",
		Keyed: true,
	}

	ListSinks = Of[None, None, []tasker.SinkState]{
		Method: "GET", Path: "/v1/dlq/sinks", ID: "listSinks", Class: overload.Reads, Needs: access.ReadSystem, Tag: "emission",
		Summary: "List sinks and their delivery status",
		About:   "A sink that no server uses any longer is listed with its last status.",
	}

	FollowEvents = Of[apiv1.EventQuery, None, apiv1.CloudEvent]{
		Method: "GET", Path: "/v1/dlq/events", ID: "followEvents", Class: overload.Streams, Needs: access.ReadEvents, Tag: "emission",
		Summary: "Stream the events of investigations and tasks",
		About:   aboutFeed,
		Gives:   "text/event-stream", Quiet: true,
	}
)
