package endpoint

import (
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/overload"
)

// API keys and sessions.
var (
	WhoAmI = Of[None, None, apiv1.Identity]{
		Method: "GET", Path: "/v1/whoami", ID: "whoAmI", Class: overload.Exempt, Anyone: true, Tag: "access",
		Summary: "Get the identity and the permissions of the caller",
	}

	ListKeys = Of[apiv1.KeyQuery, None, apiv1.KeyList]{
		Method: "GET", Path: "/v1/keys", ID: "listKeys", Class: overload.Reads, Needs: access.Administer, Tag: "access",
		Summary: "List API keys, newest first",
		About:   "Tokens are not stored and cannot be shown again.",
	}

	CreateKey = Of[None, apiv1.CreateKey, apiv1.CreatedKey]{
		Method: "POST", Path: "/v1/keys", ID: "createKey", Class: overload.Operations, Needs: access.Administer, Tag: "access",
		Summary:  "Create an API key",
		About:    "The response contains its token, which cannot be shown again. It is recorded in the audit log.",
		Statuses: created,
	}

	RotateKey = Of[None, apiv1.RotateKey, apiv1.CreatedKey]{
		Method: "POST", Path: "/v1/keys/{key_uuid}/rotate", ID: "rotateKey", Class: overload.Operations, Needs: access.Administer, Tag: "access",
		Summary: "Replace the token of an API key",
		About:   "The old token stays valid for grace_seconds.",
	}

	RevokeKey = Of[None, None, apiv1.Key]{
		Method: "DELETE", Path: "/v1/keys/{key_uuid}", ID: "revokeKey", Class: overload.Operations, Needs: access.Administer, Tag: "access",
		Summary:    "Revoke an API key",
		About:      "All servers reject it within five seconds and close its streams and sessions. Safe to repeat.",
		Repeatable: true,
	}

	ListSessions = Of[apiv1.SessionQuery, None, apiv1.SessionList]{
		Method: "GET", Path: "/v1/sessions", ID: "listSessions", Class: overload.Reads, Needs: access.Administer, Tag: "access",
		Summary: "List browser sessions, newest first",
	}

	EndSessions = Of[None, apiv1.EndSessions, apiv1.EndedSessions]{
		Method: "POST", Path: "/v1/sessions/end", ID: "endSessions", Class: overload.Operations, Needs: access.Administer, Tag: "access",
		Summary: "End a session, or all sessions of a subject",
		About: "All servers reject them within five seconds and close their streams. It is recorded in the audit log. The user can sign in again: " +
			"to prevent that, use the identity provider or revoke the key. Safe to repeat.",
		Repeatable: true,
	}
)
