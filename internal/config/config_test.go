package config

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"tasker.example/tasker"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const someURL = "postgres://tasker:secret@127.0.0.1:5432/tasker"

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tasker.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDefaultsOnlyLackADatabase(t *testing.T) {
	c, err := Load("", nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Default(), c); diff != "" {
		t.Errorf("without file and environment (-default +got):\n%s", diff)
	}
	want := "the configuration is wrong:\n  database.url: is missing: set it in the file, the variable TASKER_DATABASE_URL or the flag --database-url"
	if err := c.Validate(); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	c.Database.URL = someURL
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}

func TestLaterWins(t *testing.T) {
	path := file(t, `
[server]
listen = "127.0.0.1:1"
environment = "staging"
[database]
url = "postgres://file/db"
`)
	c, err := Load(path, []string{"TASKER_SERVER_LISTEN=127.0.0.1:2", "TASKER_SERVER_ENVIRONMENT=", "TASKER_LOG_LEVEL=debug", "PATH=/bin"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Set("log.level", "warn"); err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Server.Listen = "127.0.0.1:2"       // environment over file
	want.Server.Environment = "staging"      // an empty variable is absent
	want.Database.URL = "postgres://file/db" // file over default
	want.Log.Level = "warn"                  // flag over environment
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The keys as the documents that Tasker follows spell them.
func TestFileOfTheDocuments(t *testing.T) {
	c, err := Load(file(t, `
[staleness_detection]
enabled = false
batch_size = 50
detection_interval_seconds = 60  # 5 minutes

[staleness_detection.thresholds]
waiting_for_dependencies_minutes = 120
waiting_for_retry_minutes = 45
steps_in_process_minutes = 90
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, specified := Default().StalenessDetection, (StalenessDetection{
		Enabled: true, BatchSize: 100, DetectionIntervalSeconds: 300, Thresholds: Thresholds{60, 30, 30, 60},
	}); got != specified {
		t.Errorf("the defaults are %+v, specified are %+v", got, specified)
	}
	want := Default()
	want.StalenessDetection = StalenessDetection{BatchSize: 50, DetectionIntervalSeconds: 60, Thresholds: Thresholds{120, 45, 90, 60}}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFaultsOfFiles(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"table instead of text", "[server]\nlisen = 1\n[database]\nurl.host = 1\n", "\nline 4: database.url: must be text"},
		{"unknown keys", "top = 1\n[server]\nlisen = \"x\"\n[stalenes_detection]\nenabled = true\n[log]\ncolour = true\nlevel = \"info\"\n[\"odd\\nsection\"]\n", `
line 1: top: unknown key
line 3: server.lisen: unknown key; did you mean server.listen?
line 4: stalenes_detection: unknown key; did you mean staleness_detection?
line 7: log.colour: unknown key
line 9: odd\nsection: unknown key`},
		{"wrong type: text", "\n[staleness_detection]\nbatch_size = \"100\"\n", "\nline 3: staleness_detection.batch_size: must be a whole number"},
		{"wrong type: fraction", "[database]\nmax_connections = 1.5\n", "\nline 2: database.max_connections: must be a whole number"},
		{"wrong type: number", "[server]\nlisten = 8080\n", "\nline 2: server.listen: must be text"},
		{"wrong type: truth", "[staleness_detection]\nenabled = \"yes\"\n", "\nline 2: staleness_detection.enabled: must be true or false"},
		{"too large a number", "[database]\nmax_connections = 99999999999999999999\n", "\nline 2: database.max_connections: must be a whole number"},
		{"not a table", "server = 5\n", "\nline 1: server: must be a table"},
		{"list of tables", "[[server]]\nlisten = \"a\"\n", "\nline 1: server: must be a table"},
		{"syntax", "[server]\nlisten = \n", "\nline 2: invalid TOML: "},
		{"twice", "[server]\nlisten = \"a\"\nlisten = \"b\"\n", "\nline 3: "},
		{"not UTF-8", "[server]\nlisten = \"\xff\"\n", "\nline 2: invalid TOML: "},
		{"YAML", "server:\n  listen: x\n", "\nline 1: invalid TOML: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := file(t, tt.text)
			c, err := Load(path, nil)
			if tasker.CodeOf(err) != tasker.Invalid || !reflect.DeepEqual(c, Config{}) {
				t.Fatalf("%v, %v", c, err)
			}
			want := fmt.Sprintf("the configuration (file %q and environment) is wrong:", path) + strings.ReplaceAll(tt.want, "\n", "\n  ")
			if !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "struct") {
				t.Errorf("error\n%s\nwant\n%s", err, want)
			}
		})
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	large := file(t, strings.Repeat("#", 2<<20))
	for path, want := range map[string]string{
		filepath.Join(dir, "missing.toml"): fmt.Sprintf("the configuration file %q does not exist", filepath.Join(dir, "missing.toml")),
		dir:                                fmt.Sprintf("cannot read the configuration file %q: is a directory", dir),
		large:                              fmt.Sprintf("the configuration file %q is larger than 1048576 bytes; is it the right file?", large),
	} {
		if _, err := Load(path, nil); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

func TestFaultsOfTheEnvironment(t *testing.T) {
	_, err := Load(file(t, "[server]\nlisen = \"x\"\n"), []string{
		"TASKER_STALENESS_DETECTION_BATCH_SIZE=many",
		"TASKER_STALENESS_DETECTION_ENABLED=yes",
		"TASKER_STALENESS_DETECTION_BATCHSIZE=5",
		"TASKER_STALENESS_DETECTION_THRESHOLDS_STEPS_IN_PROCESS_MINUTES=1.5",
		"TASKER_STALENES_DETECTION_ENABLED=false",
		"TASKER_DATABSE_URL=postgres://secret",
		"TASKER_WORKERS_LEASE=5",
		"TASKER_LOG_ZZZZZZZZZZ=1",
		"TASKER_URL=http://127.0.0.1:8080",
		"TASKER_TEST_DIR=/tmp",
		"TASKER_BINARY=/usr/local/bin/tasker",
		"TASKER=1",
		"SERVER_LISTEN=x",
		"not a variable",
	})
	var e *tasker.Error
	if !errors.As(err, &e) || e.Code != tasker.Invalid {
		t.Fatal(err)
	}
	var got []string
	for _, f := range e.Details.([]tasker.Fault) {
		got = append(got, f.String())
	}
	want := []string{
		`line 2: server.lisen: unknown key; did you mean server.listen?`,
		`TASKER_DATABSE_URL: unknown variable; did you mean TASKER_DATABASE_URL?`,
		`TASKER_LOG_ZZZZZZZZZZ: unknown variable; did you mean TASKER_LOG_LEVEL?`,
		`TASKER_STALENESS_DETECTION_BATCHSIZE: unknown variable; did you mean TASKER_STALENESS_DETECTION_BATCH_SIZE?`,
		`TASKER_STALENESS_DETECTION_BATCH_SIZE: must be a whole number, not "many"`,
		`TASKER_STALENESS_DETECTION_ENABLED: must be true or false, not "yes"`,
		`TASKER_STALENESS_DETECTION_THRESHOLDS_STEPS_IN_PROCESS_MINUTES: must be a whole number, not "1.5"`,
		`TASKER_STALENES_DETECTION_ENABLED: unknown variable; did you mean TASKER_STALENESS_DETECTION_ENABLED?`,
		`TASKER_WORKERS_LEASE: unknown variable; did you mean TASKER_WORKERS_LEASE_SECONDS?`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

func TestFilesMayBeginWithAByteOrderMark(t *testing.T) {
	c, err := Load(file(t, "\ufeff[server]\nlisten = \"127.0.0.1:1\"\n"), nil)
	if err != nil || c.Server.Listen != "127.0.0.1:1" {
		t.Errorf("listen %q, error %v", c.Server.Listen, err)
	}
}

func TestUnknownVariablesAreErrors(t *testing.T) {
	for variable, want := range map[string]string{
		"TASKER_LISTEN=x":         "TASKER_SERVER_LISTEN",
		"TASKER_OIDC_ISSUER=x":    "TASKER_AUTH_OIDC_ISSUER",
		"TASKER_DB_URL=x":         "TASKER_DATABASE_URL",
		"TASKER_SERVER_PORT=8080": "TASKER_SERVER_LISTEN",
		"TASKER_PORT=8080":        "",
		"TASKER_HOME=/srv":        "",
	} {
		wrong := ": unknown variable"
		if want != "" {
			wrong += "; did you mean " + want + "?"
		}
		name, _, _ := strings.Cut(variable, "=")
		if _, err := Load("", []string{variable}); err == nil || !strings.HasSuffix(err.Error(), name+wrong) {
			t.Errorf("%s: error %v, want %s", variable, err, wrong)
		}
	}
}

// serviceVariables are set by Kubernetes for a Service named tasker and for others whose names begin with it.
func serviceVariables() []string {
	var list []string
	for _, service := range []string{"TASKER", "TASKER_SERVER", "TASKER_DATABASE", "TASKER_AUTH", "TASKER_EMISSION_RECEIVERS_PAGER"} {
		for _, ending := range []string{
			"SERVICE_HOST=10.0.0.1", "SERVICE_PORT=8080", "SERVICE_PORT_HTTP=8080", "PORT=tcp://10.0.0.1:8080", "PORT=udp://10.0.0.1:53",
			"PORT_8080_TCP=tcp://10.0.0.1:8080", "PORT_8080_TCP_PROTO=tcp", "PORT_8080_TCP_PORT=8080", "PORT_8080_TCP_ADDR=10.0.0.1",
			"PORT_53_UDP=udp://10.0.0.1:53", "PORT_9_SCTP_ADDR=10.0.0.1", "NAME=/web/server", "ENV_POSTGRES_USER=x",
		} {
			list = append(list, service+"_"+ending)
		}
	}
	return list
}

func TestVariablesOfServicesAreSkipped(t *testing.T) {
	got, err := Load("", serviceVariables())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Default(), got); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	for _, k := range Keys() {
		for _, value := range []string{"x", "/x", "tcp://x"} {
			if serviceVariable.MatchString(k.Env + "=" + value) {
				t.Errorf("%s looks like a variable of a Service", k.Env)
			}
		}
	}
}

func TestDatabaseURLFromTheEnvironment(t *testing.T) {
	path := file(t, "[database]\nurl = \"postgres://file/db\"\n")
	for _, tt := range []struct {
		environ []string
		want    string
	}{
		{nil, "postgres://file/db"},
		{[]string{"DATABASE_URL=postgres://plain/db"}, "postgres://plain/db"},
		{[]string{"TASKER_DATABASE_URL=postgres://ours/db", "DATABASE_URL=postgres://plain/db"}, "postgres://ours/db"},
		{[]string{"DATABASE_URL=", "TASKER_DATABASE_URL="}, "postgres://file/db"},
		{[]string{"DATABASE_URL=postgres://a=b/db?x=y"}, "postgres://a=b/db?x=y"},
		{[]string{"TASKER_DATABASE_URL=postgres://first/db", "TASKER_DATABASE_URL=postgres://last/db"}, "postgres://last/db"},
	} {
		c, err := Load(path, tt.environ)
		if err != nil || c.Database.URL != tt.want {
			t.Errorf("%v: %q, %v; want %q", tt.environ, c.Database.URL, err, tt.want)
		}
	}
}

func TestSet(t *testing.T) {
	c := Default()
	for name, want := range map[string]string{
		"server.lisen":                   "the configuration is wrong:\n  server.lisen: unknown key; did you mean server.listen?",
		"server":                         "the configuration is wrong:\n  server: unknown key",
		"staleness_detection.batch_size": "the configuration is wrong:\n  staleness_detection.batch_size: must be a whole number, not \"x\"",
	} {
		if err := c.Set(name, "x"); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	if diff := cmp.Diff(Default(), c); diff != "" {
		t.Errorf("a refused value changed something:\n%s", diff)
	}
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Config)
		want   []string
	}{
		{"smallest", func(c *Config) {
			c.Server.Listen, c.Server.MaxBodyBytes, c.Server.ShutdownTimeoutSeconds = ":0", 65536, 1
			c.Database.MaxConnections, c.Database.StatementTimeoutMS = 2, 100
			c.Workers = Workers{LeaseSeconds: 3, HeartbeatIntervalSeconds: 1, MaxRetryAfterSeconds: 1}
			c.MessageQueue.MaxQueueExpiries, c.MessageQueue.RabbitMQ.WorkerQueueTTLMS, c.MessageQueue.RabbitMQ.SweepGraceMS = 1, 3001, 0
			c.MessageQueue.NoWorkerAfterMS = 1000
			c.MessageQueue.RabbitMQ.DeadLetter.TTLMS = 60_000
			c.Emission = Emission{TaskEventMaxBytes: 1024, StoreTimeoutMS: 100, MaxRefusals: 1, Webhook: Webhook{TimeoutMS: 100, Concurrency: 1}, RabbitMQ: EventBus{Exchange: "e"}}
			c.StalenessDetection = StalenessDetection{BatchSize: 1, DetectionIntervalSeconds: 1, Thresholds: Thresholds{1, 1, 1, 1}}
			c.Investigations.BasePriority = BasePriority{}
		}, nil},
		{"largest", func(c *Config) {
			c.Server.Listen, c.Server.MaxBodyBytes, c.Server.ShutdownTimeoutSeconds = "[::1]:65535", 67108864, 600
			c.Database.MaxConnections, c.Database.StatementTimeoutMS = 1000, 600000
			c.Workers = Workers{LeaseSeconds: 3600, HeartbeatIntervalSeconds: 1200, MaxRetryAfterSeconds: 31_536_000}
			c.MessageQueue.MaxQueueExpiries, c.MessageQueue.RabbitMQ.WorkerQueueTTLMS, c.MessageQueue.RabbitMQ.SweepGraceMS = 1000, 604_800_000, 3_600_000
			c.MessageQueue.NoWorkerAfterMS = 3_600_000
			c.MessageQueue.RabbitMQ.DeadLetter.TTLMS = 2_592_000_000
			c.Emission.RetryAttempts, c.Emission.RetryDelayMS, c.Emission.StoreTimeoutMS = 10, 60_000, 60_000
			c.Emission.TaskEventMaxBytes = 262_144
			c.Emission.MaxPerSecond, c.Emission.MaxRefusals, c.Emission.Webhook.TimeoutMS, c.Emission.Webhook.Concurrency = 100_000, 100, 60_000, 100
			c.StalenessDetection = StalenessDetection{BatchSize: 10000, DetectionIntervalSeconds: 86400, Thresholds: Thresholds{10080, 10080, 10080, 10080}}
			c.Investigations.BasePriority = BasePriority{525600, 525600, 525600, 525600, 525600}
		}, nil},
		{"all wrong", func(c *Config) {
			*c = Config{Server: Server{Listen: "8080", Environment: "no name!"}, Database: Database{URL: "mysql://root:secret@localhost"}}
		}, []string{
			`server.max_body_bytes: must be from 65536 to 67108864, not 0`,
			`server.max_inflight_bytes: must be from 65536 to 17179869184, not 0`,
			`server.shutdown_timeout_seconds: must be from 1 to 600, not 0`,
			`database.max_connections: must be from 2 to 1000, not 0`,
			`database.statement_timeout_ms: must be from 100 to 600000, not 0`,
			`workers.lease_seconds: must be from 3 to 3600, not 0`,
			`workers.heartbeat_interval_seconds: must be from 1 to 1200, not 0`,
			`workers.max_retry_after_seconds: must be from 1 to 31536000, not 0`,
			`message_queue.transport: must be postgres or rabbitmq, not ""`,
			`message_queue.queue_ttl: must be unless_saturated or always, not ""`,
			`message_queue.max_queue_expiries: must be from 1 to 1000, not 0`,
			`message_queue.no_worker_after_ms: must be from 1000 to 3600000, not 0`,
			`message_queue.rabbitmq.worker_queue_ttl_ms: must be from 1000 to 604800000, not 0`,
			`message_queue.rabbitmq.dead_letter.ttl_ms: must be from 60000 to 2592000000, not 0`,
			`staleness_detection.batch_size: must be from 1 to 10000, not 0`,
			`staleness_detection.detection_interval_seconds: must be from 1 to 86400, not 0`,
			`staleness_detection.thresholds.waiting_for_dependencies_minutes: must be from 1 to 10080, not 0`,
			`staleness_detection.thresholds.waiting_for_retry_minutes: must be from 1 to 10080, not 0`,
			`staleness_detection.thresholds.steps_in_process_minutes: must be from 1 to 10080, not 0`,
			`staleness_detection.thresholds.error_recovery_minutes: must be from 1 to 10080, not 0`,
			`breaker.failures: must be from 2 to 100000, not 0`, `breaker.tasks: must be from 1 to 100, not 0`,
			`breaker.share_percent: must be from 1 to 100, not 0`, `breaker.window_seconds: must be from 5 to 300, not 0`,
			`emission.task_event_max_bytes: must be from 1024 to 262144, not 0`,
			`emission.store_timeout_ms: must be from 100 to 60000, not 0`,
			`emission.max_refusals: must be from 1 to 100, not 0`,
			`emission.webhook.timeout_ms: must be from 100 to 60000, not 0`,
			`emission.webhook.concurrency: must be from 1 to 100, not 0`,
			`auth.mode: must be auto or required, not ""`,
			"auth.session_hours: must be from 1 to 720, not 0",
			"auth.session_idle_minutes: must be from 5 to 10080, not 0",
			"limits.creates: must be from 1 to 100000, not 0",
			"limits.bulk_creates: must be from 1 to 1000, not 0",
			"limits.operations: must be from 1 to 100000, not 0",
			"limits.claims: must be from 1 to 1000000, not 0",
			"limits.reports: must be from 1 to 1000000, not 0",
			"limits.connections: must be from 10 to 1000000, not 0",
			"limits.namespaces: must be from 1 to 100000, not 0",
			"limits.templates: must be from 1 to 100000, not 0",
			"limits.template_versions: must be from 1 to 100000, not 0",
			"limits.handlers: must be from 1 to 100000, not 0",
			"limits.workers: must be from 1 to 10000, not 0",
			`log.level: must be debug, info, warn or error, not ""`,
			`log.format: must be text or json, not ""`,
			`server.listen: must be host:port, such as 127.0.0.1:8080, not "8080"`,
			`server.environment: must be letters, digits, dots, dashes and underscores, not "no name!"`,
			`database.url: must begin with postgres:// or be a list of keywords such as host=… dbname=…`,
			`message_queue.rabbitmq.worker_queue_ttl_ms: must be more than workers.lease_seconds (0 seconds), not 0, so that workers have time to return`,
			`emission.rabbitmq.exchange: must be at most 200 letters, digits, dots, dashes, colons and underscores and not begin with amq., not ""`,
			`message_queue.rabbitmq.exchange: must be at most 200 letters, digits, dots, dashes, colons and underscores and not begin with amq., not ""`,
			`message_queue.rabbitmq.dead_letter.exchange: must be at most 200 letters, digits, dots, dashes, colons and underscores and not begin with amq., not ""`,
			`staleness_detection.thresholds.steps_in_process_minutes: must be more than workers.lease_seconds (0 seconds), not 0: a lost worker must be detected before its task is stale`,
		}},
		{"no room for one body", func(c *Config) { c.Server.MaxBodyBytes, c.Server.MaxInflightBytes = 8<<20, 4<<20 }, []string{
			`server.max_inflight_bytes: must be at least server.max_body_bytes (8388608), not 4194304: otherwise the largest body could never be read`,
		}},
		{"heartbeat", func(c *Config) { c.Workers.HeartbeatIntervalSeconds = 11 }, []string{
			`workers.heartbeat_interval_seconds: must be at most a third of workers.lease_seconds (30), not 11, so that a worker may miss two heartbeats`,
		}},
		{"lease and limits", func(c *Config) { c.Workers.LeaseSeconds = 1800 }, []string{
			`message_queue.rabbitmq.worker_queue_ttl_ms: must be more than workers.lease_seconds (1800 seconds), not 300000, so that workers have time to return`,
			`staleness_detection.thresholds.steps_in_process_minutes: must be more than workers.lease_seconds (1800 seconds), not 30: a lost worker must be detected before its task is stale`,
		}},
		{"no broker", func(c *Config) { c.MessageQueue.Transport = "rabbitmq" }, []string{
			`message_queue.rabbitmq.url: is missing: the rabbitmq transport requires it`,
		}},
		{"broker", func(c *Config) {
			c.MessageQueue.Transport, c.MessageQueue.RabbitMQ.URL = "rabbitmq", "amqps://u:secret@broker/v"
		}, nil},
		{"no URL of a broker", func(c *Config) { c.MessageQueue.RabbitMQ.URL = "http://u:secret@broker" }, []string{
			`message_queue.rabbitmq.url: must begin with amqp:// or amqps://`,
		}},
		{"broken URL of a broker", func(c *Config) { c.MessageQueue.RabbitMQ.URL = "amqp://u:sec%ret@broker" }, []string{
			`message_queue.rabbitmq.url: is not a valid URL: special characters in the password must be percent-encoded`,
		}},
		{"exchanges", func(c *Config) {
			c.MessageQueue.RabbitMQ.Exchange, c.MessageQueue.RabbitMQ.DeadLetter.Exchange = "tasker dlx", "amq.topic"
		}, []string{
			`message_queue.rabbitmq.exchange: must be at most 200 letters, digits, dots, dashes, colons and underscores and not begin with amq., not "tasker dlx"`,
			`message_queue.rabbitmq.dead_letter.exchange: must be at most 200 letters, digits, dots, dashes, colons and underscores and not begin with amq., not "amq.topic"`,
		}},
		{"one exchange for both", func(c *Config) { c.MessageQueue.RabbitMQ.Exchange = "tasker.dlx" }, []string{
			`message_queue.rabbitmq.dead_letter.exchange: must differ from the exchange for steps, "tasker.dlx"`,
		}},
		{"sinks", func(c *Config) { c.Emission.Sinks = "log, webhook ,rabbitmq, mail,log" }, []string{
			`emission.sinks: must contain only log, webhook and rabbitmq, not "mail"`,
			`emission.sinks: contains log twice`,
			`emission.webhook.url: is missing: the webhook sink requires it`,
			`emission.rabbitmq.url: is missing: the rabbitmq sink requires this or message_queue.rabbitmq.url`,
		}},
		{"no sinks", func(c *Config) { c.Emission.Sinks = " , " }, nil},
		{"all sinks", func(c *Config) {
			c.Emission.Sinks, c.Emission.Webhook.URL, c.MessageQueue.RabbitMQ.URL = "log,webhook,rabbitmq", "https://r/x?secret=1", "amqp://b"
			c.Emission.Topics = "dlq.entry.created=3/1000, dlq.entry.resolved = 0/0"
		}, nil},
		{"receiver in a private network", func(c *Config) {
			c.Emission.Sinks, c.Emission.Webhook.URL, c.Emission.Webhook.AllowPrivate = "webhook", "http://127.0.0.1:1/x", true
		}, nil},
		{"receiver in the open", func(c *Config) { c.Emission.Sinks, c.Emission.Webhook.URL = "webhook", "http://secret.example.com" }, []string{
			`emission.webhook.url: must begin with https://; http:// is only for receivers in a private network, with emission.webhook.allow_private`,
		}},
		{"receiver with a password", func(c *Config) { c.Emission.Sinks, c.Emission.Webhook.URL = "webhook", "https://u:pass@r" }, []string{
			`emission.webhook.url: must not contain a user or password: events are signed instead`,
		}},
		{"no receiver", func(c *Config) { c.Emission.Sinks, c.Emission.Webhook.URL = "webhook", "secret" }, []string{
			`emission.webhook.url: must be a URL such as https://receiver.example.com/tasker`,
		}},
		{"topics", func(c *Config) { c.Emission.Topics = "dlq.entry.created=3" }, []string{
			`emission.topics: must be topic=attempts/delay_ms, such as dlq.entry.created=3/1000, not "dlq.entry.created=3"`,
		}},
		{"unknown topic", func(c *Config) { c.Emission.Topics = "dlq=3/4" }, []string{
			`emission.topics: unknown topic "dlq": must be one of dlq.entry.created, dlq.entry.updated, dlq.entry.recovered, dlq.entry.resolved, task.completed, task.failed, task.cancelled, step.failed`,
		}},
		{"too many tries", func(c *Config) { c.Emission.Topics = "dlq.entry.created=11/0" }, []string{
			`emission.topics: dlq.entry.created: attempts must be from 0 to 10 and delay_ms from 0 to 60000`,
		}},
		{"port", func(c *Config) { c.Server.Listen = "localhost:http" }, []string{`server.listen: must end with a port from 0 to 65535, not "http"`}},
		{"port too large", func(c *Config) { c.Server.Listen = "localhost:65536" }, []string{`server.listen: must end with a port from 0 to 65535, not "65536"`}},
		{"keywords", func(c *Config) { c.Database.URL = "host=127.0.0.1 dbname=tasker" }, nil},
		{"broken URL", func(c *Config) { c.Database.URL = "postgres://u:sec%ret@h/db" }, []string{
			`database.url: is not a valid URL: special characters in the password must be percent-encoded`,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Default()
			c.Database.URL = someURL
			tt.change(&c)
			err := c.Validate()
			var got []string
			if e, ok := errors.AsType[*tasker.Error](err); ok {
				for _, f := range e.Details.([]tasker.Fault) {
					got = append(got, f.String())
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
			if err != nil && (strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "sec%ret")) {
				t.Errorf("the password is shown: %v", err)
			}
		})
	}
}

func TestRedactedKeysOfReceivers(t *testing.T) {
	c := Default()
	c.Emission.Webhook.URL, c.Emission.Webhook.Secret = "https://r.example.com/services/T0/hush?key=hush", "hush"
	c.Emission.RabbitMQ.URL, c.MessageQueue.RabbitMQ.URL = "amqp://u:hush@b/v", "amqps://u:hush@b"
	shown := fmt.Sprintf("%+v", c.Redacted())
	if strings.Contains(shown, "hush") || !strings.Contains(shown, "https://r.example.com/REDACTED") || !strings.Contains(shown, "amqp://u:REDACTED@b/v") {
		t.Errorf("shown is %s", shown)
	}
}

func TestRedacted(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "",
		someURL:                 "postgres://tasker:REDACTED@127.0.0.1:5432/tasker",
		"postgres://tasker@h/d": "postgres://tasker@h/d",
		"postgresql://tasker:@h/d?sslmode=disable":    "postgresql://tasker:REDACTED@h/d?sslmode=disable",
		"postgres://h/d?password=secret&user=u":       "postgres://h/d?REDACTED",
		"postgres://h/d?sslPassword=secret":           "postgres://h/d?REDACTED",
		"postgres://h/d?password=secret%zz":           "postgres://h/d?REDACTED",
		"postgres://u:sec%ret@h/d":                    "REDACTED",
		"host=h user=u password=secret dbname=d":      "host=h user=u password=REDACTED dbname=d",
		`password='se cr\'et' host=h`:                 "password=REDACTED host=h",
		"PASSWORD = 'secret host=h":                   "PASSWORD = REDACTED",
		"host=h sslpassword=secret\\ secret dbname=d": "host=h sslpassword=REDACTED dbname=d",
		"mysql://root:secret@h":                       "REDACTED",
	} {
		c := Default()
		c.Database.URL = text
		if got := c.Redacted().Database.URL; got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
		if c.Database.URL != text {
			t.Errorf("%q was changed", text)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		password := rapid.StringMatching(`[A-Z0-9!$&'()*,;:@/?#%= \\]{0,6}SECRET[A-Z0-9!$&'()*,;:@/?#%= \\]{0,6}`).Draw(t, "password")
		form := rapid.SampledFrom([]string{"postgres://u:%s@h/d", "postgres://u@h/d?password=%s", "postgresql://u:%s@h:5/d?sslmode=disable"}).Draw(t, "form")
		if got := redactURL(fmt.Sprintf(form, password)); strings.Contains(got, "SECRET") {
			t.Fatalf("%q is shown as %q", fmt.Sprintf(form, password), got)
		}
	})
}

func TestKeys(t *testing.T) {
	envs := map[string]bool{}
	for _, k := range Keys() {
		if k.Env != "TASKER_"+strings.ToUpper(strings.ReplaceAll(k.Name, ".", "_")) || envs[k.Env] {
			t.Errorf("%s has the variable %s", k.Name, k.Env)
		}
		envs[k.Env] = true
		if !strings.HasSuffix(k.Meaning, ".") {
			t.Errorf("%s has the meaning %q", k.Name, k.Meaning)
		}
		c, same := Default(), Default()
		k.Name = strings.Replace(k.Name, "NAME", "pager", 1)
		same.addReceiver(k.Name)
		if err := c.Set(k.Name, k.Default); err != nil || !reflect.DeepEqual(c, same) {
			t.Errorf("%s does not read its own default %q: %v", k.Name, k.Default, err)
		}
	}
	for _, want := range []Key{
		{"server.listen", "TASKER_SERVER_LISTEN", "127.0.0.1:8080", "", "Address on which the server listens, as host:port. Without a host it listens on all interfaces; with port 0, on any free port."},
		{"staleness_detection.enabled", "TASKER_STALENESS_DETECTION_ENABLED", "true", "true or false", "Whether this server sweeps stale tasks."},
		{"staleness_detection.batch_size", "TASKER_STALENESS_DETECTION_BATCH_SIZE", "100", "1 to 10000", "Maximum tasks that one sweep moves. If there are more, the next sweep follows immediately."},
		{"log.level", "TASKER_LOG_LEVEL", "info", "debug, info, warn or error", "Lowest level that is logged."},
	} {
		found := false
		for _, k := range Keys() {
			found = found || k == want
		}
		if !found {
			t.Errorf("%+v is not among the keys", want)
		}
	}
	if n := len(Keys()); n != 108 {
		t.Errorf("%d keys", n)
	}
}

// Every key can be given in each way, and all ways mean the same.
func TestEveryKeyInEveryWay(t *testing.T) {
	for _, k := range Keys() {
		text, literal := "7", "7"
		k.Name, k.Env = strings.Replace(k.Name, "NAME", "pager", 1), strings.Replace(k.Env, "_NAME_", "_PAGER_", 1)
		switch {
		case strings.HasPrefix(k.Values, "true"):
			text = strconv.FormatBool(k.Default == "false")
			literal = text
		case k.Default == "" || !strings.Contains(k.Values, " to "):
			text, literal = "x", `"x"`
		}
		fromSet := Default()
		if err := fromSet.Set(k.Name, text); err != nil {
			t.Fatal(err)
		}
		fromEnv, err := Load("", []string{k.Env + "=" + text})
		if err != nil {
			t.Fatal(err)
		}
		fromFile, err := Load(file(t, k.Name+" = "+literal+"\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if reflect.DeepEqual(fromSet, Default()) || !reflect.DeepEqual(fromEnv, fromSet) || !reflect.DeepEqual(fromFile, fromSet) {
			t.Errorf("%s: set %+v, environment %+v, file %+v", k.Name, fromSet, fromEnv, fromFile)
		}
	}
}

func TestDurations(t *testing.T) {
	c := Default()
	for name, pair := range map[string][2]time.Duration{
		"shutdown":  {c.Server.ShutdownTimeout(), 30 * time.Second},
		"statement": {c.Database.StatementTimeout(), 30 * time.Second},
		"lease":     {c.Workers.Lease(), 30 * time.Second},
		"heartbeat": {c.Workers.HeartbeatInterval(), 10 * time.Second},
		"detection": {c.StalenessDetection.DetectionInterval(), 5 * time.Minute},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s is %s, want %s", name, pair[0], pair[1])
		}
	}
}

func TestLogger(t *testing.T) {
	for _, tt := range []struct {
		log   Log
		level slog.Level
		want  string
	}{
		{Log{"info", "text"}, slog.LevelInfo, "level=INFO msg=hello"},
		{Log{"info", "text"}, slog.LevelDebug, ""},
		{Log{"debug", "json"}, slog.LevelDebug, `"level":"DEBUG","msg":"hello"`},
		{Log{"error", "json"}, slog.LevelWarn, ""},
	} {
		var b bytes.Buffer
		(Config{Log: tt.log}).Logger(&b).Log(t.Context(), tt.level, "hello")
		if !strings.Contains(b.String(), tt.want) || (tt.want == "") != (b.Len() == 0) {
			t.Errorf("%+v wrote %q", tt.log, b.String())
		}
	}
}

// A secret may be in a file, as container platforms hand them out.
func TestSecretsFromFiles(t *testing.T) {
	secret := func(text string) string {
		path := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c, err := Load("", []string{"TASKER_DATABASE_URL_FILE=" + secret("postgres://u:hush@db/tasker\n"), "TASKER_AUTH_OIDC_CLIENT_SECRET_FILE=" + secret("hush"), "TASKER_EMISSION_WEBHOOK_SECRET_FILE="})
	if err != nil || c.Database.URL != "postgres://u:hush@db/tasker" || c.Auth.OIDC.ClientSecret != "hush" {
		t.Errorf("%+v, %v", c, err)
	}
	if shown := fmt.Sprintf("%+v", c.Redacted()); strings.Contains(shown, "hush") {
		t.Errorf("shown as %s", shown)
	}
	missing := filepath.Join(t.TempDir(), "none")
	for variable, words := range map[string]string{
		"TASKER_DATABASE_URL_FILE=" + missing:                            "cannot read the file",
		"TASKER_DATABASE_URL_FILE=" + secret(""):                         "is empty",
		"TASKER_DATABASE_URL_FILE=" + secret("\n"):                       "is empty",
		"TASKER_DATABASE_URL_FILE=" + secret(strings.Repeat("x", 1<<17)): "larger than 65536 bytes",
		"TASKER_LOG_LEVEL_FILE=" + secret("debug"):                       "unknown variable",
	} {
		if _, err := Load("", []string{variable}); err == nil || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "xxx") {
			t.Errorf("%.60s: %v, want %q", variable, err, words)
		}
	}
	both := []string{"TASKER_DATABASE_URL_FILE=" + secret("postgres://a/b"), "TASKER_DATABASE_URL=postgres://c/d"}
	if _, err := Load("", both); err == nil || !strings.Contains(err.Error(), "set only one of them") {
		t.Errorf("both: %v", err)
	}
}

func TestTheIdentityProviderIsChecked(t *testing.T) {
	good := func() Config {
		c := Default()
		c.Database.URL = "postgres:///x"
		c.Auth.OIDC.Issuer, c.Auth.OIDC.ClientID, c.Auth.OIDC.RoleBindings = "https://id.example.com", "tasker", "ops=operator@*"
		return c
	}
	if err := good().Validate(); err != nil {
		t.Errorf("a good one: %v", err)
	}
	for words, change := range map[string]func(*OIDC){
		"auth.oidc.issuer: is missing":             func(o *OIDC) { o.Issuer = "" },
		"must use https":                           func(o *OIDC) { o.Issuer = "http://id.example.com" },
		`invalid issuer "id"`:                      func(o *OIDC) { o.Issuer = "id" },
		"invalid public URL":                       func(o *OIDC) { o.PublicURL = "https://a/?b" },
		"missing client id":                        func(o *OIDC) { o.ClientID = "" },
		`invalid algorithm "none"`:                 func(o *OIDC) { o.Algorithms = "RS256, none" },
		`invalid algorithm "HS256"`:                func(o *OIDC) { o.Algorithms = "HS256" },
		"auth.oidc.role_bindings: is missing":      func(o *OIDC) { o.RoleBindings = " " },
		"auth.oidc.role_bindings: invalid grant":   func(o *OIDC) { o.RoleBindings = "ops=root@*" },
		"auth.oidc.role_bindings: invalid binding": func(o *OIDC) { o.RoleBindings = "ops" },
	} {
		c := good()
		change(&c.Auth.OIDC)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %q", err, words)
		}
	}
}

func TestTLSAndProxiesAreChecked(t *testing.T) {
	for words, change := range map[string]func(*Server){
		"must be set together":          func(s *Server) { s.TLSKeyFile = "k" },
		"requires server.tls_cert_file": func(s *Server) { s.TLSClientCAFile = "c" },
		`must contain only addresses and networks such as 10.0.0.0/8, not "localhost"`: func(s *Server) { s.TrustedProxies = "10.0.0.0/8, localhost" },
	} {
		c := Default()
		c.Database.URL = "postgres:///x"
		change(&c.Server)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %q", err, words)
		}
	}
	c := Server{TrustedProxies: "10.0.0.1, 10.0.0.0/8,::1"}
	if got := fmt.Sprint(c.ProxyNetworks()); got != "[10.0.0.1/32 10.0.0.0/8 ::1/128]" {
		t.Errorf("proxies are %s", got)
	}
}

// Receivers come from a file and from the environment, also their secrets; what is wrong with one
// is told of it by name, and none of its secrets is shown.
func TestReceivers(t *testing.T) {
	secret := file(t, "R0UTINGKEY\n")
	c, err := Load(file(t, `
[emission]
routes = """
severity=critical -> pager, chat
namespace=orders topic=case.* -> chat; -> log
"""
[emission.receivers.chat]
form = "slack"
url = "https://hooks.slack.com/services/T0/B0/SECRETPATH"
[emission.receivers.plain]
url = "https://receiver.example.com/x"
secret = "SIGNINGKEY"
`), []string{"TASKER_EMISSION_RECEIVERS_PAGER_FORM=pagerduty", "TASKER_EMISSION_RECEIVERS_PAGER_KEY_FILE=" + secret, "TASKER_DATABASE_URL=postgres:///x"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	if p := c.Emission.Receivers["pager"]; p.Key != "R0UTINGKEY" || c.Emission.Receivers["plain"].Form != "cloudevents" {
		t.Errorf("%+v", p)
	}
	shown := fmt.Sprintf("%+v %+v %+v", *c.Redacted().Emission.Receivers["pager"], *c.Redacted().Emission.Receivers["chat"], *c.Redacted().Emission.Receivers["plain"])
	for _, s := range []string{"R0UTINGKEY", "SECRETPATH", "SIGNINGKEY"} {
		if strings.Contains(shown, s) {
			t.Errorf("%s is shown: %s", s, shown)
		}
	}
	if c.Emission.Receivers["pager"].Key != "R0UTINGKEY" {
		t.Error("the configuration itself has lost its secret")
	}
	for _, tt := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Emission.Receivers["chat"].URL = "" }, "emission.receivers.chat.url: is missing"},
		{func(c *Config) { c.Emission.Receivers["chat"].URL = "http://10.0.0.1/x" }, "emission.receivers.chat.url: must begin with https://"},
		{func(c *Config) { c.Emission.Receivers["chat"].Form = "fax" }, "emission.receivers.chat.form: must be cloudevents, pagerduty"},
		{func(c *Config) { c.Emission.Receivers["chat"].Key = "x" }, "emission.receivers.chat.key: is only for the form pagerduty"},
		{func(c *Config) { c.Emission.Receivers["pager"].Key = "" }, "emission.receivers.pager.key: is missing"},
		{func(c *Config) { c.Emission.Receivers["chat"].Topics = "case.*, fax.*" }, `emission.receivers.chat.topics: unknown message topic "fax.*"`},
		{func(c *Config) { c.Emission.Receivers["webhook"] = c.Emission.Receivers["chat"] }, "emission.receivers.webhook: must have another name"},
		{func(c *Config) { c.Emission.Receivers["A_B"] = c.Emission.Receivers["chat"] }, "emission.receivers.A_B: must have a name of at most 32"},
		{func(c *Config) { c.Emission.Routes = "-> fax" }, `emission.routes: route 1: unknown sink "fax": must be one of log, chat, pager, plain`},
		{func(c *Config) { c.Emission.Routes = "topic=fax -> log" }, `emission.routes: route 1: unknown message topic "fax"`},
		{func(c *Config) { c.Emission.Routes = "-> log; colour=red -> log" }, `emission.routes: route 2 ("colour=red -> log"): unknown condition "colour"`},
		{func(c *Config) { c.Emission.PublicURL = "tasker.example.com" }, "emission.public_url: must be a URL"},
	} {
		changed := c
		changed.Emission.Receivers = map[string]*Receiver{}
		for name, r := range c.Emission.Receivers {
			one := *r
			changed.Emission.Receivers[name] = &one
		}
		tt.change(&changed)
		if err := changed.Validate(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want %s", err, tt.want)
		}
	}
	if _, err := Load("", []string{"TASKER_EMISSION_RECEIVERS_PAGER_COLOUR=red"}); err == nil || !strings.Contains(err.Error(), "unknown variable") {
		t.Errorf("a field that does not exist: %v", err)
	}
}
