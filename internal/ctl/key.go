package ctl

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/endpoint"
)

// tokenFlag is a hidden flag that is always rejected, with an explanation why the API key cannot
// be passed as a flag.
const tokenFlag = "token"

var errTokenFlag = cli.UsageError{Text: "--token is not supported: the process list would show your API key; " +
	"use TASKER_TOKEN, TASKER_TOKEN_FILE or --token-file FILE"}

// tokenOption returns the client option with the API key.
func (p *program) tokenOption() client.Option {
	switch {
	case p.tokenFile != "":
		return client.WithTokenFile(p.tokenFile)
	case p.env["TASKER_TOKEN"] != "":
		return client.WithToken(strings.TrimSpace(p.env["TASKER_TOKEN"]))
	default:
		return client.WithTokenFile(p.env["TASKER_TOKEN_FILE"])
	}
}

func (p *program) hasToken() bool {
	return p.tokenFile != "" || p.env["TASKER_TOKEN"] != "" || p.env["TASKER_TOKEN_FILE"] != ""
}

// adviseOnAccess returns hints for callers who are not authenticated or lack a permission.
func (p *program) adviseOnAccess(e apiv1.ErrorBody) []string {
	switch {
	case e.Code == string(tasker.Unauthorized) && !p.hasToken():
		return []string{"set TASKER_TOKEN, or TASKER_TOKEN_FILE to a file with your API key; administrators create keys with: tasker-ctl key create"}
	case e.Code == string(tasker.Unauthorized):
		return []string{"check TASKER_TOKEN, TASKER_TOKEN_FILE or --token-file; administrators create keys with: tasker-ctl key create"}
	case e.Code == string(tasker.Forbidden):
		return []string{"your permissions: tasker-ctl whoami"}
	case e.Code == string(tasker.NotFound) && p.hasToken(): // it may be in a namespace that the caller cannot see
		return []string{"your permissions: tasker-ctl whoami"}
	default:
		return nil
	}
}

var whoAmICommand = plain(endpoint.WhoAmI, help{
	use: "whoami", short: "Show your identity and permissions",
	example: `  tasker-ctl whoami
  TASKER_TOKEN_FILE=deploy.token tasker-ctl whoami -o json | jq -r '.grants[]'`,
}, func(p *program, i apiv1.Identity) {
	if !i.SignIn {
		fmt.Fprintln(p.out, "Authentication is disabled: every caller has all permissions.")
		return
	}
	p.printFields("", field{"Subject", i.Subject}, field{"Grants", orDash(i.Grants)})
})

var keyCommand = group(help{
	use: "key", short: "Manage API keys",
	example: `  tasker-ctl key create deploy --grant developer@payments > deploy.token
  tasker-ctl key list
  tasker-ctl key rotate deploy --grace 1h > deploy.token
  tasker-ctl key revoke deploy`,
},
	plain(endpoint.CreateKey, help{
		use: "create NAME --grant ROLE@NAMESPACE", short: "Create an API key",
		long: `Create an API key and print its token once, on standard output. Everything else goes to
standard error. The token cannot be shown again.

A grant is ROLE@NAMESPACE, or ROLE@* for all namespaces. The roles are viewer, operator,
developer, worker and admin; see docs/reference/security.md.`,
		example: `  tasker-ctl key create deploy --grant developer@payments --expires-in 90d > deploy.token
  tasker-ctl key create ann --grant operator@payments --grant viewer@orders
  tasker-ctl key create worker-7 --grant worker@payments -o json | jq -r .token`,
	}, func(p *program, k apiv1.CreatedKey) {
		p.printToken("created", k)
	}, func(_ *program, k *apiv1.CreateKey, a arguments) error {
		k.Name = a.text[0]
		if len(k.Grants) == 0 {
			return cli.Usagef("--grant is required: it sets the permissions, such as operator@payments")
		}
		return nil
	}),
	plain(endpoint.RevokeKey, help{
		use: "revoke NAME|UUID", short: "Revoke an API key",
		long: `Revoke an API key. All servers reject it within five seconds and close its open requests.
It cannot be undone.`,
		example: `  tasker-ctl key revoke deploy`,
	}, func(p *program, k apiv1.Key) {
		p.printDone("Key revoked: %s", clean(k.Name))
		p.printFields("  ", formatKey(k)...)
	}, func(p *program, _ *endpoint.None, a arguments) error {
		return p.findKey(p.command.Context(), a)
	}),
	(*program).newKeyListCommand, (*program).newKeyRotateCommand,
)

// maxGracePeriod is the maximum that the server accepts.
const maxGracePeriod = 30 * 24 * time.Hour

// printToken prints a token to stdout and the details of its key to stderr.
func (p *program) printToken(what string, k apiv1.CreatedKey) {
	fmt.Fprintf(p.err, "%s Key %s: %s\n", p.paint(p.err, green, "✓"), what, clean(k.Key.Name))
	for _, f := range formatKey(k.Key) {
		if value := formatValue(f.value); value != "" {
			p.printHint("%s: %s", f.label, value)
		}
	}
	p.printHint("Its token is shown only now:")
	fmt.Fprintln(p.out, k.Token)
}

func formatKey(k apiv1.Key) []field {
	return []field{
		{"UUID", k.KeyUUID}, {"Grants", k.Grants}, {"Expires", k.ExpiresAt},
		{"Revoked", k.RevokedAt}, {"Revoked by", k.RevokedBy},
	}
}

func (p *program) newKeyListCommand() *cobra.Command {
	r := newRequest(endpoint.ListKeys)
	r.prepare = func(context.Context, arguments) error {
		r.query.Search = toSearchTerm(r.query.Search)
		return nil
	}
	return r.command(p, help{
		use: "list", short: "List API keys, newest first", limit: 50,
		long: `List API keys, the newest first. PREFIX is how their tokens begin: a key that was found
somewhere can be looked up by it.`,
		example: `  tasker-ctl key list
  tasker-ctl key list --search tsk_mfrggzdfmz --revoked
  tasker-ctl key list -o json | jq -r '.keys[] | select(.last_used_at == null) | .name'`,
	}, func(l apiv1.KeyList) {
		header := "name, grants, prefix, created, expires, last used, key"
		if r.query.Revoked {
			header += ", revoked"
		}
		printList(p, l.Keys, "No keys.", header, func(k apiv1.Key) []any {
			grants, prefixes := strings.Join(k.Grants, ","), orDash(strings.Join(k.Prefixes, ","))
			row := []any{k.Name, grants, prefixes, k.CreatedAt, orDash(k.ExpiresAt), orDash(k.LastUsedAt), k.KeyUUID}
			if r.query.Revoked {
				row = append(row, orDash(k.RevokedAt))
			}
			return row
		})
		p.printNextPage(l.Pagination)
	})
}

// toSearchTerm shortens a token to its prefix, because servers log the URLs of requests. It returns
// other text unchanged.
func toSearchTerm(text string) string {
	if parts := strings.SplitN(text, "_", 3); access.IsToken(text) && len(parts) == 3 {
		return parts[0] + "_" + parts[1]
	}
	return text
}

func (p *program) newKeyRotateCommand() *cobra.Command {
	r := newRequest(endpoint.RotateKey)
	var grace time.Duration
	r.prepare = func(ctx context.Context, a arguments) error {
		r.body.GraceSeconds = int64(grace / time.Second)
		return p.findKey(ctx, a)
	}
	c := r.command(p, help{
		use: "rotate NAME|UUID", short: "Replace the token of an API key",
		long: `Replace the token of an API key and print the new one once, on standard output. The UUID and
the permissions do not change. The old token stays valid for --grace; by default it expires
at once.`,
		example: `  tasker-ctl key rotate deploy --grace 1h > deploy.token`,
	}, func(k apiv1.CreatedKey) { p.printToken("rotated", k) })
	c.Flags().Var(cli.Span(&grace, time.Second, maxGracePeriod), "grace", "how long the old token stays valid, such as 1h (default: it expires at once)")
	return c
}

// findKey replaces the first argument, which is the UUID, name or token prefix of a key, by its UUID.
func (p *program) findKey(ctx context.Context, a arguments) error {
	text := a.text[0]
	if id, err := uuid.Parse(text); err == nil && len(text) == len(id.String()) {
		a.id[0] = id
		return nil
	}
	text = toSearchTerm(text)
	found, err := p.client.Keys(ctx, apiv1.KeyQuery{Search: text, Page: apiv1.Page{Limit: 1}})
	switch {
	case err != nil:
		return err
	case len(found.Keys) == 0:
		return tasker.Errorf(tasker.NotFound, "key %s not found or revoked: tasker-ctl key list --revoked", text)
	}
	a.id[0], err = parseResponseID("key_uuid", found.Keys[0].KeyUUID)
	return err
}

var sessionCommand = group(help{
	use: "session", short: "Manage browser sessions",
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
