// Package config loads the server configuration from defaults, a TOML file, the environment and flags,
// in increasing order of precedence. Unknown keys and invalid values are errors.
//
// Each key is a field of [Config] with tags, which also determine its name in the environment, its
// limits and its documentation ([Keys]).
package config

import (
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/idp"
	"tasker.example/tasker/internal/redact"
)

// Config is the configuration of a server. The tags of its fields: toml is the key; doc the
// description for the documentation; range the limits of a number; oneof the allowed words.
type Config struct {
	Server             Server             `toml:"server"`
	Database           Database           `toml:"database"`
	Workers            Workers            `toml:"workers"`
	MessageQueue       MessageQueue       `toml:"message_queue"`
	StalenessDetection StalenessDetection `toml:"staleness_detection"`
	Investigations     Investigations     `toml:"investigations"`
	Breaker            Breaker            `toml:"breaker"`
	Emission           Emission           `toml:"emission"`
	Retention          Retention          `toml:"retention"`
	UI                 UI                 `toml:"ui"`
	Redaction          Redaction          `toml:"redaction"`
	Auth               Auth               `toml:"auth"`
	Limits             Limits             `toml:"limits"`
	Log                Log                `toml:"log"`
}

// Server configures the HTTP server.
type Server struct {
	Listen string `toml:"listen" doc:"Address on which the server listens, as host:port. Without a host it listens on all interfaces; with port 0, on any free port."`

	AllowedHosts string `toml:"allowed_hosts" doc:"Host names, separated by commas, that requests may use in addition to those of this machine, such as those that a proxy in front of it passes on. Empty: none on loopback; any where others can reach the server."`

	TLSCertFile string `toml:"tls_cert_file" doc:"PEM file with the certificate chain of the server. With it the server answers HTTPS only, TLS 1.2 or newer. The file is read again when it changes. Empty: HTTP."`

	TLSKeyFile string `toml:"tls_key_file" doc:"PEM file with the private key of tls_cert_file."`

	TLSClientCAFile string `toml:"tls_client_ca_file" doc:"PEM file of the certificate authorities that sign the certificates of workers. Workers then need a certificate as well as a key. Other callers need none, but an invalid one is refused. Empty: no certificates."`

	TrustedProxies string `toml:"trusted_proxies" doc:"Addresses and networks of proxies in front of the server, separated by commas, such as 10.0.0.0/8. X-Forwarded-For and X-Forwarded-Proto are accepted only from them."`

	Environment string `toml:"environment" doc:"Name of the environment whose overrides apply in templates, such as production. Empty: no overrides apply."`

	Templates string `toml:"templates" doc:"Directory of the templates that are registered at start. Empty: none."`

	MaxBodyBytes int `toml:"max_body_bytes" range:"65536..67108864" doc:"Maximum size of a request body, in bytes. Below 2097152, workers cannot report the largest results, of 1 MiB."`

	MaxInflightBytes int `toml:"max_inflight_bytes" range:"65536..17179869184" doc:"Maximum total size of the request bodies that are read at the same time, in bytes. In the worst case a body takes eight times its size in memory. Requests beyond the limit wait for two seconds and are then refused with 503. At least max_body_bytes."`

	ShutdownTimeoutSeconds int `toml:"shutdown_timeout_seconds" range:"1..600" doc:"Time that requests and background passes get to finish when the server stops, in seconds."`
}

// ProxyNetworks returns the networks in trusted_proxies. It ignores invalid networks, which
// [Config.Validate] rejects.
func (s Server) ProxyNetworks() []netip.Prefix {
	var list []netip.Prefix
	for _, text := range splitList(s.TrustedProxies) {
		if p, err := parseNetwork(text); err == nil {
			list = append(list, p)
		}
	}
	return list
}

func parseNetwork(text string) (netip.Prefix, error) {
	if ip, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(ip, ip.BitLen()), nil
	}
	return netip.ParsePrefix(text)
}

// Limits configures admission control and quotas. Requests beyond the limits get 429 or 503 with
// Retry-After.
type Limits struct {
	RequestsPerSecond int `toml:"requests_per_second" range:"0..1000000" doc:"Maximum requests per second for each API key or user, with bursts of twice as many. The worker protocol does not count. Further requests are answered with 429. 0: no limit. Without authentication it does not apply."`

	UnknownRequestsPerSecond int `toml:"unknown_requests_per_second" range:"0..1000000" doc:"Maximum requests per second from one address with wrong or no credentials, with bursts of twice as many. Further requests are answered with 429. 0: no limit."`

	Creates int `toml:"creates" range:"1..100000" doc:"Maximum concurrent requests to create a task or register a template. As many more wait for up to a second; further ones are answered with 503. One caller gets at most half of them, which also applies to the following limits."`

	PaceCreates bool `toml:"pace_creates" doc:"Whether the server pauses between transactions that store tasks while more tasks are waiting than it can store and commits take 1.5 times as long as usual, so that heartbeats and reports stay fast. It does not pause while no worker holds steps."`

	BulkCreates int `toml:"bulk_creates" range:"1..1000" doc:"Maximum concurrent requests to create many tasks; others wait for up to five seconds."`

	Reads int `toml:"reads" range:"0..100000" doc:"Maximum concurrent requests for lists, details and pages; others wait for up to two seconds. 0: one less than the number of database connections for them, which leaves one for operators."`

	Operations int `toml:"operations" range:"1..100000" doc:"Maximum concurrent requests of operators to change something; others wait for up to five seconds."`

	Claims int `toml:"claims" range:"1..1000000" doc:"Maximum workers that claim steps from this server, or wait for steps, at the same time."`

	Reports int `toml:"reports" range:"1..1000000" doc:"Maximum concurrent heartbeats and reports of workers; ten times as many wait for up to ten seconds."`

	Connections int `toml:"connections" range:"10..1000000" doc:"Maximum concurrent connections to the server. Further connections are closed immediately, as are those of an address that already has half of them, unless it is a proxy in trusted_proxies. Must fit the limit of open files of the server process."`

	Namespaces int `toml:"namespaces" range:"1..100000" doc:"Maximum namespaces that have a template. A template in another namespace is refused with 409. The next three limits are also answered with 409."`

	Templates int `toml:"templates" range:"1..100000" doc:"Maximum template names in one namespace."`

	TemplateVersions int `toml:"template_versions" range:"1..100000" doc:"Maximum versions of one template."`

	Handlers int `toml:"handlers" range:"1..100000" doc:"Maximum handlers that the templates of one namespace use."`

	Workers int `toml:"workers" range:"1..10000" doc:"Maximum live workers in one namespace. Another worker is answered with 503 and tries again. The limit for all namespaces together is 10000."`
}

// Bounds returns the quotas.
func (l Limits) Bounds() tasker.Bounds {
	return tasker.Bounds{Namespaces: l.Namespaces, Templates: l.Templates, Versions: l.TemplateVersions, Handlers: l.Handlers, Workers: l.Workers}
}

// UI configures the operator UI at /ui.
type UI struct {
	Enabled bool `toml:"enabled" doc:"Whether this server serves the web pages."`

	ReadOnly bool `toml:"read_only" doc:"Whether the web pages are read-only. Does not affect the API."`
}

// Database configures the connection to PostgreSQL.
type Database struct {
	URL string `toml:"url" secret:"true" doc:"Address of the PostgreSQL database: postgres://user:password@host:5432/name, or the keywords of libpq. Of several hosts, the one that accepts writes is used. The variable DATABASE_URL is read as well."`

	MaxConnections int `toml:"max_connections" range:"2..1000" doc:"Maximum connections of one server, not counting one that listens for notifications. From 8 on they are divided by purpose, so that a flood of requests does not delay other work: of 20, 5 are for requests, 3 for new tasks and templates, 2 for heartbeats, 7 for claims and results, 3 for timers."`

	StatementTimeoutMS int `toml:"statement_timeout_ms" range:"100..600000" doc:"Time after which PostgreSQL cancels a statement, in milliseconds."`
}

// Workers configures leases and heartbeats.
type Workers struct {
	LeaseSeconds int `toml:"lease_seconds" range:"3..3600" doc:"Time for which a worker holds a step without a heartbeat, in seconds. After that the attempt is lost. Registered workers keep a longer lease that they have already received."`

	HeartbeatIntervalSeconds int `toml:"heartbeat_interval_seconds" range:"1..1200" doc:"Time between two heartbeats of a worker, in seconds. At most a third of lease_seconds, so that two heartbeats may be lost."`

	MaxRetryAfterSeconds int `toml:"max_retry_after_seconds" range:"1..31536000" doc:"Longest delay that a worker may request with retry_after_ms, in seconds. A step whose worker requests more waits for an operator."`
}

// MessageQueue configures how workers get steps.
type MessageQueue struct {
	Transport string `toml:"transport" oneof:"postgres rabbitmq" doc:"How workers learn of steps: by claiming (postgres), or also through messages of the broker (rabbitmq)."`

	AutoRecover bool `toml:"auto_recover" doc:"Whether steps that no worker claimed in time return to the queue automatically when a worker for them is alive."`

	QueueTTL string `toml:"queue_ttl" oneof:"unless_saturated always" doc:"Whether a step that has waited for a worker for longer than worker_queue_ttl_ms fails: not while its queue is saturated, that is, its live workers are busy with its steps (unless_saturated), or always (always). A template can override it (lifecycle.queue_ttl)."`

	MaxQueueExpiries int `toml:"max_queue_expiries" range:"1..1000" doc:"How many times in a row a step may expire unclaimed although a worker for it is alive. After that it waits for an operator."`

	NoWorkerAfterMS int `toml:"no_worker_after_ms" range:"1000..3600000" doc:"Time for which a waiting step may have no live worker, in milliseconds. After that it fails and is investigated as worker_unavailable, even before worker_queue_ttl_ms is over. The time starts when the step was enqueued, or when the last worker with its namespace and handler left, was drained or stopped sending heartbeats, whichever is later."`

	PriorityAgeMS int `toml:"priority_age_ms" range:"0..86400000" doc:"Time after which some claims take a step before more urgent ones, in milliseconds, so that no step waits forever. 0: a step waits until nothing is more urgent."`

	RabbitMQ RabbitMQ `toml:"rabbitmq"`
}

// RabbitMQ configures the message broker and the queue timeout.
type RabbitMQ struct {
	URL string `toml:"url" secret:"true" doc:"URL of RabbitMQ: amqp://user:password@host:5672/vhost, or amqps. Required for the transport rabbitmq."`

	Exchange string `toml:"exchange" doc:"Exchange through which steps are announced to workers."`

	WorkerQueueTTLMS int `toml:"worker_queue_ttl_ms" range:"1000..604800000" doc:"Time for which a step waits for a worker, in milliseconds. After that it fails and is investigated as worker_unavailable. Applies to both transports. Templates and steps can override it. Must exceed lease_seconds; 2 to 5 times the usual duration of steps, and at least 2 minutes, is recommended."`

	SweepGraceMS int `toml:"sweep_grace_ms" range:"0..3600000" doc:"Time that the sweep gives the broker to dead-letter an expired step before the sweep fails the step itself, in milliseconds. With the transport postgres the sweep does not wait."`

	DeadLetter DeadLetter `toml:"dead_letter"`
}

// DeadLetter configures the handling of messages that no worker consumed in time.
type DeadLetter struct {
	Enabled bool `toml:"enabled" doc:"Whether the broker dead-letters expired messages and this server handles them. Without it the sweep alone finds expired steps."`

	Exchange string `toml:"exchange" doc:"Exchange for dead letters. The name of their queue is the name of the exchange followed by .queue."`

	TTLMS int `toml:"ttl_ms" range:"60000..2592000000" doc:"Time after which an unhandled dead letter is removed, in milliseconds."`
}

// StalenessDetection configures the staleness sweep.
type StalenessDetection struct {
	Enabled bool `toml:"enabled" doc:"Whether this server sweeps stale tasks."`

	DryRun bool `toml:"dry_run" doc:"Whether the sweep only logs what it finds and changes nothing."`

	BatchSize int `toml:"batch_size" range:"1..10000" doc:"Maximum tasks that one sweep moves. If there are more, the next sweep follows immediately."`

	DetectionIntervalSeconds int `toml:"detection_interval_seconds" range:"1..86400" doc:"Time between two sweeps, in seconds."`

	Thresholds Thresholds `toml:"thresholds"`
}

// Thresholds limits how long a task may stay in a state. Templates can override it.
type Thresholds struct {
	WaitingForDependenciesMinutes int `toml:"waiting_for_dependencies_minutes" range:"1..10080" doc:"Time after which a task that waits for dependencies is stale, in minutes. Templates can override it."`

	WaitingForRetryMinutes int `toml:"waiting_for_retry_minutes" range:"1..10080" doc:"Time after which a task that waits for a retry is stale, in minutes. Templates can override it."`

	StepsInProcessMinutes int `toml:"steps_in_process_minutes" range:"1..10080" doc:"Time after which a task with steps in process is stale, in minutes. Templates can override it. More than lease_seconds, so that a lost worker is noticed first."`

	ErrorRecoveryMinutes int `toml:"error_recovery_minutes" range:"1..10080" doc:"Time for which a task may stay in error without an investigation, in minutes. After that the sweep opens one."`
}

// Breaker configures the circuit breakers of handlers.
type Breaker struct {
	Enabled bool `toml:"enabled" doc:"Whether the steps of a handler are held when its attempts keep failing with one cause, until a probe step succeeds."`

	Failures int `toml:"failures" range:"2..100000" doc:"Number of failed attempts with one cause within window_seconds, on all servers together, that opens a breaker."`

	Tasks int `toml:"tasks" range:"1..100" doc:"Minimum number of tasks to which the failed attempts must belong."`

	SharePercent int `toml:"share_percent" range:"1..100" doc:"Minimum percentage of the ended attempts of the handler that must have failed with that cause."`

	WindowSeconds int `toml:"window_seconds" range:"5..300" doc:"Period for which attempts count, in seconds."`
}

// Window returns window_seconds.
func (b Breaker) Window() time.Duration { return secondsToDuration(b.WindowSeconds) }

// Investigations configures the order of the investigation queue.
type Investigations struct {
	BasePriority BasePriority `toml:"base_priority"`
}

// BasePriority sets the base priority of each reason in the investigation queue.
type BasePriority struct {
	DependencyCycleDetected int `toml:"dependency_cycle_detected" range:"0..525600" doc:"Base priority of dependency_cycle_detected in the investigation queue, in minutes of age. A change of a base priority applies to investigations that are opened or raised after it; those already open keep their place."`

	MaxRetriesExceeded int `toml:"max_retries_exceeded" range:"0..525600" doc:"Base priority of max_retries_exceeded, in minutes of age."`

	StalenessTimeout int `toml:"staleness_timeout" range:"0..525600" doc:"Base priority of staleness_timeout, in minutes of age."`

	WorkerUnavailable int `toml:"worker_unavailable" range:"0..525600" doc:"Base priority of worker_unavailable, in minutes of age."`

	ManualDLQ int `toml:"manual_dlq" range:"0..525600" doc:"Base priority of manual_dlq, in minutes of age."`
}

// Reasons returns the base priorities by reason.
func (b BasePriority) Reasons() map[tasker.Reason]int {
	return map[tasker.Reason]int{
		tasker.DependencyCycleDetected: b.DependencyCycleDetected, tasker.MaxRetriesExceeded: b.MaxRetriesExceeded,
		tasker.StalenessTimeout: b.StalenessTimeout, tasker.WorkerUnavailable: b.WorkerUnavailable, tasker.ManualDLQ: b.ManualDLQ,
	}
}

// Emission configures the delivery of events and notifications.
type Emission struct {
	Sinks string `toml:"sinks" doc:"Sinks that receive the events of investigations and tasks, separated by commas: log, webhook, rabbitmq. Empty: none. A new sink receives only events that occur after it was added."`

	Source string `toml:"source" doc:"Source that events state, such as https://tasker.example.com."`

	RetryAttempts int `toml:"dlq_emit_retry_attempts" range:"0..10" doc:"Number of immediate retries of an event that could not be sent. When all have failed, that counts as one failure, and the event is sent again later."`

	RetryDelayMS int `toml:"dlq_emit_retry_delay_ms" range:"0..60000" doc:"Delay before each immediate retry, in milliseconds."`

	Topics string `toml:"topics" doc:"Attempts and delay of individual topics, as topic=attempts/delay_ms separated by commas, such as dlq.entry.created=3/1000. Topics: dlq.entry.created, .updated, .recovered, .resolved, task.completed, .failed, .cancelled, step.failed."`

	TaskEvents string `toml:"task_events" doc:"Subscriptions to events of tasks: one on each line, or separated by semicolons, such as topic=task.completed,task.failed namespace=payments template=settle include_result. Topics: task.completed, task.failed, task.cancelled, step.failed; task.* matches all that begin with task. Without namespace or template, those of any are selected. include_result adds the results of the last steps to task.completed, include_context adds the context to all events. Empty: no events of tasks are written. Use the same subscriptions on all servers: the server that makes a change writes its events."`

	TaskEventMaxBytes int `toml:"task_event_max_bytes" range:"1024..262144" doc:"Maximum size of the context in an event of a task, and of all results together, in bytes. A larger part is replaced by the path of the API that returns it."`

	StoreTimeoutMS int `toml:"store_timeout_ms" range:"100..60000" doc:"Timeout of one database operation, in milliseconds."`

	MaxPerSecond int `toml:"max_per_second" range:"0..100000" doc:"Maximum events per second for one sink, so that a backlog does not overload it. 0: no limit."`

	MaxRefusals int `toml:"max_refusals" range:"1..100" doc:"Number of refusals by a sink after which an event is no longer sent, so that it does not block others."`

	Routes string `toml:"routes" doc:"Routes of messages about incidents and operations: one on each line, or separated by semicolons, as conditions, an arrow and sinks, such as namespace=orders severity=high -> pager, chat. The first route that matches a message applies. Conditions: namespace, template, severity (or worse), reason, cause (part of the error), topic. Empty: messages go to the log, if that is a sink. See docs/concepts/messages.md."`

	PublicURL string `toml:"public_url" doc:"URL at which browsers reach this installation, such as https://tasker.example.com. Links in messages and answer links begin with it. Empty: auth.oidc.public_url; without that, messages have no links."`

	Webhook Webhook `toml:"webhook"`

	RabbitMQ EventBus `toml:"rabbitmq"`

	Receivers map[string]*Receiver `toml:"receivers"`
}

// Webhook configures a receiver of events over HTTP.
type Webhook struct {
	URL string `toml:"url" secret:"true" doc:"URL to which events are posted. https, unless private addresses are allowed."`

	Secret string `toml:"secret" secret:"true" doc:"Key with which events are signed (Standard Webhooks). During a key rotation, several keys separated by spaces."`

	TimeoutMS int `toml:"timeout_ms" range:"100..60000" doc:"Time within which the receiver must answer, in milliseconds."`

	AllowPrivate bool `toml:"allow_private" doc:"Whether the receiver may have an address of this machine or of a private network."`

	Concurrency int `toml:"concurrency" range:"1..100" doc:"Maximum tasks whose events are posted concurrently. The events of one task are posted one after another."`
}

// EventBus configures a RabbitMQ exchange for events.
type EventBus struct {
	URL string `toml:"url" secret:"true" doc:"URL of RabbitMQ. Empty: that of message_queue.rabbitmq."`

	Exchange string `toml:"exchange" doc:"Topic exchange to which events are published, with the topic as routing key. An event for which no queue is bound waits until one is."`
}

// Retention configures how long finished tasks are kept.
type Retention struct {
	FinishedDays int `toml:"finished_days" range:"0..36500" doc:"Days after which complete and cancelled tasks are removed, with their steps and histories. Tasks that ever had an investigation are kept as evidence. 0: never."`
}

// Redaction configures what is hidden in evidence, events and logs.
type Redaction struct {
	Keys string `toml:"keys" doc:"Keys whose values are hidden in investigations, events and the log, separated by commas. A plain name matches keys that contain it as a word or as several words. A name with *, which matches any letters, or with = before it must match the whole key. ! before a name makes an exception: a whole key that is shown. Case and separators (- _ . / : and white space) are ignored. The same names apply to name=value inside texts. Empty: nothing is hidden."`

	Paths string `toml:"paths" doc:"Parts of the snapshot that are hidden, as JSON paths separated by commas, such as $.task.context.customer.email or $.steps[*].results.result. Empty: none."`
}

// AuthRequired is the mode in which all callers must authenticate.
const AuthRequired = "required"

// Auth configures authentication.
type Auth struct {
	Mode string `toml:"mode" oneof:"auto required" doc:"Whether callers must authenticate: always (required), or unless the server listens on a loopback address (auto). Use required behind a proxy on the same machine."`

	SessionHours int `toml:"session_hours" range:"1..720" doc:"Time after which a browser has to sign in again, in hours."`

	SessionIdleMinutes int `toml:"session_idle_minutes" range:"5..10080" doc:"Time after which a browser that sends no requests has to sign in again, in minutes."`

	OIDC OIDC `toml:"oidc"`
}

// OIDC configures the identity provider.
type OIDC struct {
	Issuer string `toml:"issuer" doc:"Issuer URL of the OpenID Connect provider that authenticates people and programs, such as https://id.example.com. Empty: everybody signs in with an API key."`

	ClientID string `toml:"client_id" doc:"Client ID of this installation at the provider."`

	ClientSecret string `toml:"client_secret" secret:"true" doc:"Client secret for client_id. Empty for a public client."`

	Audience string `toml:"audience" doc:"Audience that tokens for the API must have. Empty: client_id."`

	Algorithms string `toml:"algorithms" doc:"Algorithms with which tokens may be signed, separated by commas. Only algorithms with a public key are allowed."`

	Scopes string `toml:"scopes" doc:"Scopes that are requested when a person signs in, in addition to openid, separated by commas."`

	SubjectClaim string `toml:"subject_claim" doc:"Claim that identifies a user. Its value, after user:, is recorded with everything that the user does. With email the address must be verified."`

	GroupsClaim string `toml:"groups_claim" doc:"Claim with the groups of a user, as a list or a single string."`

	RoleBindings string `toml:"role_bindings" doc:"Roles of groups, as group=role@namespace separated by commas, such as platform=operator@*, payments=developer@payments. The group * stands for everybody whom the provider authenticates. Roles: viewer, operator, developer, worker, admin."`

	PublicURL string `toml:"public_url" doc:"URL at which browsers reach this installation, such as https://tasker.example.com. The provider sends them back to /ui/sign-in/callback there. Empty: people cannot sign in to the web pages through the provider."`
}

// Options returns the options of package idp.
func (o OIDC) Options() idp.Options {
	return idp.Options{
		Issuer: o.Issuer, ClientID: o.ClientID, ClientSecret: o.ClientSecret, Audience: o.Audience, Algorithms: splitList(o.Algorithms),
		Scopes: splitList(o.Scopes), SubjectClaim: o.SubjectClaim, GroupsClaim: o.GroupsClaim, PublicURL: o.PublicURL,
	}
}

func splitList(text string) []string {
	var list []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}

// SessionLifetime returns session_hours.
func (a Auth) SessionLifetime() time.Duration { return time.Duration(a.SessionHours) * time.Hour }

// SessionIdle returns session_idle_minutes.
func (a Auth) SessionIdle() time.Duration { return time.Duration(a.SessionIdleMinutes) * time.Minute }

// Log configures the log on standard error.
type Log struct {
	Level string `toml:"level" oneof:"debug info warn error" doc:"Lowest level that is logged."`

	Format string `toml:"format" oneof:"text json" doc:"Format of log lines: text for people, json for programs."`
}

// Default returns the default configuration.
func Default() Config {
	bounds := tasker.DefaultBounds()
	return Config{
		Server:   Server{Listen: "127.0.0.1:8080", TrustedProxies: "127.0.0.0/8, ::1", MaxBodyBytes: 8 << 20, MaxInflightBytes: 64 << 20, ShutdownTimeoutSeconds: 30},
		Database: Database{MaxConnections: 20, StatementTimeoutMS: 30_000},
		Workers:  Workers{LeaseSeconds: 30, HeartbeatIntervalSeconds: 10, MaxRetryAfterSeconds: 86_400},
		MessageQueue: MessageQueue{
			Transport: "postgres", QueueTTL: string(tasker.ExpireUnlessSaturated), AutoRecover: true, MaxQueueExpiries: 3, NoWorkerAfterMS: 60_000, PriorityAgeMS: 60_000,
			RabbitMQ: RabbitMQ{
				Exchange: "tasker.executions", WorkerQueueTTLMS: 300_000, SweepGraceMS: 30_000,
				DeadLetter: DeadLetter{Enabled: true, Exchange: "tasker.dlx", TTLMS: 86_400_000},
			},
		},
		StalenessDetection: StalenessDetection{
			Enabled: true, BatchSize: 100, DetectionIntervalSeconds: 300,
			Thresholds: Thresholds{
				WaitingForDependenciesMinutes: 60, WaitingForRetryMinutes: 30, StepsInProcessMinutes: 30, ErrorRecoveryMinutes: 60,
			},
		},
		Breaker:        Breaker{Failures: 10, Tasks: 5, SharePercent: 80, WindowSeconds: 30},
		Auth:           Auth{Mode: "auto", SessionHours: 12, SessionIdleMinutes: 60, OIDC: OIDC{Algorithms: "RS256, ES256", Scopes: "profile, email", SubjectClaim: "sub", GroupsClaim: "groups"}},
		Limits:         Limits{PaceCreates: true, RequestsPerSecond: 1000, UnknownRequestsPerSecond: 20, Creates: 256, BulkCreates: 3, Operations: 16, Claims: 10_000, Reports: 1000, Connections: 20_000, Namespaces: bounds.Namespaces, Templates: bounds.Templates, TemplateVersions: bounds.Versions, Handlers: bounds.Handlers, Workers: bounds.Workers},
		Investigations: Investigations{BasePriority: newBasePriority()},
		Emission: Emission{
			Sinks: "log", Source: "tasker", RetryAttempts: 1, RetryDelayMS: 500, StoreTimeoutMS: 2000, MaxPerSecond: 200, MaxRefusals: 5, TaskEventMaxBytes: 16 << 10,
			Webhook: Webhook{TimeoutMS: 5000, Concurrency: 8}, RabbitMQ: EventBus{Exchange: "tasker.events"},
		},
		UI:        UI{Enabled: true},
		Redaction: Redaction{Keys: redact.DefaultKeys},
		Log:       Log{Level: "info", Format: "text"},
	}
}

func newBasePriority() BasePriority {
	of := tasker.DefaultBasePriorities()
	return BasePriority{
		DependencyCycleDetected: of[tasker.DependencyCycleDetected], MaxRetriesExceeded: of[tasker.MaxRetriesExceeded],
		StalenessTimeout: of[tasker.StalenessTimeout], WorkerUnavailable: of[tasker.WorkerUnavailable], ManualDLQ: of[tasker.ManualDLQ],
	}
}

// Hosts returns the names in allowed_hosts, in lower case.
func (s Server) Hosts() []string { return splitList(strings.ToLower(s.AllowedHosts)) }

// FinishedAge returns finished_days.
func (r Retention) FinishedAge() time.Duration { return time.Duration(r.FinishedDays) * 24 * time.Hour }

// ShutdownTimeout returns shutdown_timeout_seconds.
func (s Server) ShutdownTimeout() time.Duration { return secondsToDuration(s.ShutdownTimeoutSeconds) }

// StatementTimeout returns statement_timeout_ms.
func (d Database) StatementTimeout() time.Duration {
	return millisecondsToDuration(d.StatementTimeoutMS)
}

// SweepGrace returns sweep_grace_ms.
func (r RabbitMQ) SweepGrace() time.Duration { return millisecondsToDuration(r.SweepGraceMS) }

// TTL returns ttl_ms.
func (d DeadLetter) TTL() time.Duration { return millisecondsToDuration(d.TTLMS) }

// Lease returns lease_seconds.
func (w Workers) Lease() time.Duration { return secondsToDuration(w.LeaseSeconds) }

// MaxRetryAfter returns max_retry_after_seconds.
func (w Workers) MaxRetryAfter() time.Duration { return secondsToDuration(w.MaxRetryAfterSeconds) }

// HeartbeatInterval returns heartbeat_interval_seconds.
func (w Workers) HeartbeatInterval() time.Duration {
	return secondsToDuration(w.HeartbeatIntervalSeconds)
}

// Rules returns the redaction rules. If the configuration is invalid, it returns the zero value,
// which hides nothing.
func (r Redaction) Rules() redact.Rules {
	rules, err := redact.New(r.Keys, r.Paths)
	if err != nil {
		return redact.Rules{}
	}
	return rules
}

// DetectionInterval returns detection_interval_seconds.
func (s StalenessDetection) DetectionInterval() time.Duration {
	return secondsToDuration(s.DetectionIntervalSeconds)
}

func millisecondsToDuration(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func secondsToDuration(n int) time.Duration { return time.Duration(n) * time.Second }

// Logger returns a logger that writes to w and hides secrets.
func (c Config) Logger(w io.Writer) *slog.Logger {
	l := c.Log
	var level slog.Level
	if level.UnmarshalText([]byte(l.Level)) != nil {
		level = slog.LevelInfo
	}
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: c.Redaction.Rules().Attr}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
