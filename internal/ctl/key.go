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

func (p *program) newWhoAmICommand() *cobra.Command {
	return newRequestCommand(p, help{
		use:   "whoami",
		short: "Show your identity and permissions",
		example: `  tasker-ctl whoami
  TASKER_TOKEN_FILE=deploy.token tasker-ctl whoami -o json | jq -r '.grants[]'`,
	}, func(ctx context.Context, api *client.Client, _ arguments) (apiv1.Identity, error) {
		return api.WhoAmI(ctx)
	}, func(i apiv1.Identity) {
		if !i.SignIn {
			fmt.Fprintln(p.out, "Authentication is disabled: every caller has all permissions.")
			return
		}
		p.printFields("", field{"Subject", i.Subject}, field{"Grants", orDash(strings.Join(i.Grants, ", "))})
	})
}

func (p *program) newKeyCommand() *cobra.Command {
	return cli.NewGroup(&cobra.Command{
		Use:   "key",
		Short: "Manage API keys",
		Example: "  tasker-ctl key create deploy --grant developer@payments > deploy.token\n" +
			"  tasker-ctl key list\n  tasker-ctl key rotate deploy --grace 1h > deploy.token\n  tasker-ctl key revoke deploy",
	}, p.newKeyCreateCommand(), p.newKeyListCommand(), p.newKeyRotateCommand(), p.newKeyRevokeCommand())
}

// The maximum lifetimes that the server accepts.
const (
	maxKeyLifetime = 3650 * 24 * time.Hour
	maxGracePeriod = 30 * 24 * time.Hour
)

func (p *program) newKeyCreateCommand() *cobra.Command {
	var grants []string
	var life time.Duration
	c := newRequestCommand(p, help{
		use:   "create NAME --grant ROLE@NAMESPACE",
		short: "Create an API key",
		long: `Create an API key and print its token once, on standard output. Everything else goes to
standard error. The token cannot be shown again.

A grant is ROLE@NAMESPACE, or ROLE@* for all namespaces. The roles are viewer, operator,
developer, worker and admin; see docs/reference/security.md.`,
		example: `  tasker-ctl key create deploy --grant developer@payments --expires-in 90d > deploy.token
  tasker-ctl key create ann --grant operator@payments --grant viewer@orders
  tasker-ctl key create worker-7 --grant worker@payments -o json | jq -r .token`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.CreatedKey, error) {
		if len(grants) == 0 {
			return apiv1.CreatedKey{}, cli.Usagef("--grant is required: it sets the permissions, such as operator@payments")
		}
		k := apiv1.CreateKey{Name: a.text[0], Grants: grants}
		if life > 0 {
			seconds := int64(life / time.Second)
			k.ExpiresInSeconds = &seconds
		}
		return api.CreateKey(ctx, k)
	}, func(k apiv1.CreatedKey) { p.printToken("created", k) })
	c.Flags().StringArrayVar(&grants, "grant", nil, "what the key may do: ROLE@NAMESPACE, with * for all namespaces; may be repeated")
	c.Flags().Var(cli.Span(&life, time.Second, maxKeyLifetime), "expires-in", "how long the key is valid, such as 12h or 90d (default: for ever)")
	return c
}

// printToken prints a token to stdout and the details of its key to stderr.
func (p *program) printToken(what string, k apiv1.CreatedKey) {
	fmt.Fprintf(p.err, "%s Key %s: %s\n", p.paint(p.err, green, "✓"), what, clean(k.Key.Name))
	for _, f := range formatKey(k.Key) {
		if f.value != "" {
			p.printHint("%s: %s", f.label, f.value)
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
	var q apiv1.KeyQuery
	c := newRequestCommand(p, help{
		use:   "list",
		short: "List API keys, newest first",
		long: `List API keys, the newest first. PREFIX is how their tokens begin: a key that was found
somewhere can be looked up by it.`,
		example: `  tasker-ctl key list
  tasker-ctl key list --search tsk_mfrggzdfmz --revoked
  tasker-ctl key list -o json | jq -r '.keys[] | select(.last_used_at == null) | .name'`,
	}, func(ctx context.Context, api *client.Client, _ arguments) (apiv1.KeyList, error) {
		q.Search = toSearchTerm(q.Search)
		return api.Keys(ctx, q)
	}, func(l apiv1.KeyList) {
		header := "name, grants, prefix, created, expires, last used, key"
		if q.Revoked {
			header += ", revoked"
		}
		printList(p, l.Keys, "No keys.", header, func(k apiv1.Key) []any {
			row := []any{
				k.Name, strings.Join(k.Grants, ","), orDash(strings.Join(k.Prefixes, ",")), k.CreatedAt,
				orDash(k.ExpiresAt), orDash(k.LastUsedAt), k.KeyUUID,
			}
			if q.Revoked {
				row = append(row, orDash(k.RevokedAt))
			}
			return row
		})
		p.printNextPage(l.Pagination)
	})
	p.addQueryFlags(c, &q, 50)
	return c
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
	var grace time.Duration
	c := newRequestCommand(p, help{
		use:   "rotate NAME|UUID",
		short: "Replace the token of an API key",
		long: `Replace the token of an API key and print the new one once, on standard output. The UUID and
the permissions do not change. The old token stays valid for --grace; by default it expires
at once.`,
		example: `  tasker-ctl key rotate deploy --grace 1h > deploy.token`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.CreatedKey, error) {
		id, err := findKey(ctx, api, a.text[0])
		if err != nil {
			return apiv1.CreatedKey{}, err
		}
		return api.RotateKey(ctx, id, apiv1.RotateKey{GraceSeconds: int64(grace / time.Second)})
	}, func(k apiv1.CreatedKey) { p.printToken("rotated", k) })
	c.Flags().Var(cli.Span(&grace, time.Second, maxGracePeriod), "grace", "how long the old token stays valid, such as 1h (default: it expires at once)")
	return c
}

func (p *program) newKeyRevokeCommand() *cobra.Command {
	return newRequestCommand(p, help{
		use:   "revoke NAME|UUID",
		short: "Revoke an API key",
		long: `Revoke an API key. All servers reject it within five seconds and close its open requests.
It cannot be undone.`,
		example: `  tasker-ctl key revoke deploy`,
	}, func(ctx context.Context, api *client.Client, a arguments) (apiv1.Key, error) {
		id, err := findKey(ctx, api, a.text[0])
		if err != nil {
			return apiv1.Key{}, err
		}
		return api.RevokeKey(ctx, id)
	}, func(k apiv1.Key) {
		p.printDone("Key revoked: %s", clean(k.Name))
		p.printFields("  ", formatKey(k)...)
	})
}

// findKey returns the UUID of a key by its UUID, name or token prefix.
func findKey(ctx context.Context, api *client.Client, text string) (tasker.ID, error) {
	if id, err := uuid.Parse(text); err == nil && len(text) == len(id.String()) {
		return id, nil
	}
	text = toSearchTerm(text)
	found, err := api.Keys(ctx, apiv1.KeyQuery{Search: text, Page: apiv1.Page{Limit: 1}})
	switch {
	case err != nil:
		return tasker.ID{}, err
	case len(found.Keys) == 0:
		return tasker.ID{}, tasker.Errorf(tasker.NotFound, "key %s not found or revoked: tasker-ctl key list --revoked", text)
	}
	return parseResponseID("key_uuid", found.Keys[0].KeyUUID)
}
