package config_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"tasker.example/tasker/internal/config"
)

// docs/reference/configuration.md is made from the keys, so that it cannot be wrong.
const keysDoc = "../../docs/reference/configuration.md"

func TestConfigurationDoc(t *testing.T) {
	t.Parallel()
	got := keysPage()
	if os.Getenv("UPDATE_DOCS") != "" {
		if err := os.WriteFile(keysDoc, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(keysDoc)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Error("docs/reference/configuration.md is not what the keys say; run: UPDATE_DOCS=1 go test ./internal/config")
	}
}

func keysPage() string {
	var b strings.Builder
	b.WriteString(`# Configuration

Made from the keys in ` + "`internal/config`" + ` by its tests.

A server reads its defaults, then the file given with ` + "`--config`" + ` (TOML), then the environment, then the flags; the later
wins. A key or a ` + "`TASKER_…`" + ` variable that is unknown is an error; those that Kubernetes makes for Services and Docker for links
(` + "`TASKER_SERVER_SERVICE_HOST`, `TASKER_PORT=tcp://…`" + `) are skipped. ` + "`tasker config`" + ` prints the effective configuration, with passwords
hidden, and fails if no server could start with it; ` + "`tasker config keys`" + ` prints this list. A variable that is empty counts
as not set. Lists are one text with commas:

` + "```toml" + `
[staleness_detection.thresholds]
waiting_for_retry_minutes = 45

[redaction]
keys  = "*password*, *token, iban"
paths = "$.task.context.customer.email, $.steps[*].results.result"
` + "```" + `

| key | variable | default | meaning |
|---|---|---|---|
`)
	for _, k := range config.Keys() {
		fmt.Fprintf(&b, "| `%s` | `%s` | `%s` | %s |\n", k.Name, k.Env, k.Default, meaning(k))
	}
	b.WriteString("\n`DATABASE_URL` is read as well; `TASKER_DATABASE_URL` wins over it.\n\n" +
		"A key with a secret, such as `database.url` or `auth.oidc.client_secret`, may be in a file: its variable with `_FILE` at the end names it.\n")
	b.WriteString(`
## Connection poolers

A server works through PgBouncer in session mode, without ` + "`ignore_startup_parameters`" + ` and without settings on the role: it sets its
settings after connecting and checks them on each new connection.

` + "```ini" + `
[databases]
tasker = host=10.0.0.5 port=5432 dbname=tasker pool_mode=session

[pgbouncer]
default_pool_size = 40
` + "```" + `

` + "`default_pool_size`" + ` must be at least (` + "`database.max_connections`" + ` + 2) × servers: the connections of a server stay open. In transaction or
statement mode a server refuses to start: PostgreSQL's sessions, on which it listens and has prepared statements, are shared there.
PgBouncer refuses parameters of ` + "`database.url`" + ` that it does not know, such as ` + "`options`" + `.
`)
	return strings.ReplaceAll(b.String(), "| `` |", "| — |")
}

func meaning(k config.Key) string {
	if k.Values == "" {
		return k.Meaning
	}
	return k.Meaning + " (" + k.Values + ")"
}
