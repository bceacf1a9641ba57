package ctl

import (
	"context"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
)

func (p *program) newSessionCommand() *cobra.Command {
	return cli.NewGroup(&cobra.Command{
		Use:   "session",
		Short: "Manage browser sessions",
		Example: "  tasker-ctl session list --subject user:ann\n" +
			"  tasker-ctl session end user:ann",
	}, p.newSessionListCommand(), p.newSessionEndCommand())
}

func (p *program) newSessionListCommand() *cobra.Command {
	var q apiv1.SessionQuery
	c := newRequestCommand(p, help{
		use:   "list",
		short: "List sessions, newest first",
		example: `  tasker-ctl session list
  tasker-ctl session list --subject user:ann -o json | jq -r '.sessions[].session_uuid'`,
	}, func(ctx context.Context, api *client.Client, _ arguments) (apiv1.SessionList, error) {
		return api.Sessions(ctx, q)
	}, func(l apiv1.SessionList) {
		printList(p, l.Sessions, "No sessions.", "subject, groups, signed in, last used, ends, session", func(s apiv1.Session) []any {
			return []any{s.Subject, orDash(strings.Join(s.Groups, ",")), s.CreatedAt, s.LastUsedAt, s.EndsAt, s.SessionUUID}
		})
		p.printNextPage(l.Pagination)
	})
	p.addQueryFlags(c, &q, 50)
	return c
}

func (p *program) newSessionEndCommand() *cobra.Command {
	return newRequestCommand(p, help{
		use:   "end SUBJECT|UUID",
		short: "End sessions",
		long: `End a session, or all sessions of a subject. All servers reject it within five seconds. The
user can sign in again: to prevent that, remove them from the groups of the identity
provider or revoke their key.`,
		example: `  tasker-ctl session end user:ann`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.EndedSessions, error) {
		if id, err := uuid.Parse(a.text[0]); err == nil {
			return api.EndSessions(ctx, apiv1.EndSessions{SessionUUID: id.String()})
		}
		return api.EndSessions(ctx, apiv1.EndSessions{Subject: a.text[0]})
	}, func(e apiv1.EndedSessions) {
		if e.Ended == 0 {
			p.printHint("no open session found: tasker-ctl session list")
			return
		}
		p.printDone("%s ended", formatPlural(e.Ended, "session"))
	})
}
