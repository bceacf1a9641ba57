package ctl

import (
	"strings"

	"github.com/google/uuid"

	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/endpoint"
)

var sessionCommand = group(help{
	use:     "session",
	short:   "Manage browser sessions",
	example: "  tasker-ctl session list --subject user:ann\n  tasker-ctl session end user:ann",
},
	list(endpoint.ListSessions, help{
		use: "list", short: "List sessions, newest first", limit: 50,
		example: `  tasker-ctl session list
  tasker-ctl session list --subject user:ann -o json | jq -r '.sessions[].session_uuid'`,
	}, "No sessions.", "subject, groups, signed in, last used, ends, session", func(s apiv1.Session) []any {
		groups := orDash(strings.Join(s.Groups, ","))
		return []any{s.Subject, groups, s.CreatedAt, s.LastUsedAt, s.EndsAt, s.SessionUUID}
	}),
	plain(endpoint.EndSessions, help{
		use: "end SUBJECT|UUID", short: "End sessions",
		long: `End a session, or all sessions of a subject. All servers reject it within five seconds. The
user can sign in again: to prevent that, remove them from the groups of the identity
provider or revoke their key.`,
		example: `  tasker-ctl session end user:ann`,
	}, func(p *program, e apiv1.EndedSessions) {
		if e.Ended == 0 {
			p.printHint("no open session found: tasker-ctl session list")
			return
		}
		p.printDone("%s ended", formatPlural(e.Ended, "session"))
	}, func(_ *program, s *apiv1.EndSessions, a arguments) error {
		if id, err := uuid.Parse(a.text[0]); err == nil {
			s.SessionUUID = id.String()
		} else {
			s.Subject = a.text[0]
		}
		return nil
	}),
)
