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
	Listen string `toml:"listen" doc:"Address on which the server answers HTTP, as host:port. Without a host it answers on all interfaces; port 0 takes any free one."`

	AllowedHosts string `toml:"allowed_hosts" doc:"Names, with commas between them, under which the server may be reached beside those of this machine, such as those that a proxy in front of it passes on. Empty: none on loopback; any where others may reach the server."`

	TLSCertFile string `toml:"tls_cert_file" doc:"File with the certificate of the server and those that lead to its root, in PEM. With it the server answers HTTPS only, TLS 1.2 or newer. It is read again when it changes. Empty: HTTP."`

	TLSKeyFile string `toml:"tls_key_file" doc:"File with the private key of tls_cert_file, in PEM."`

	TLSClientCAFile string `toml:"tls_client_ca_file" doc:"PEM file of the certificate authorities that sign the certificates of workers. Workers then need a certificate as well as a key. Other callers need none, but an invalid one is refused. Empty: no certificates."`

	TrustedProxies string `toml:"trusted_proxies" doc:"Addresses and networks of proxies in front of the server, separated by commas, such as 10.0.0.0/8. X-Forwarded-For and X-Forwarded-Proto are accepted only from them."`

	Environment string `toml:"environment" doc:"Name of the environment whose overrides hold in templates, such as production. Empty: templates hold as they are written."`

	Templates string `toml:"templates" doc:"Directory of the templates that are registered at start. Empty: none are."`

	MaxBodyBytes int `toml:"max_body_bytes" range:"65536..67108864" doc:"Size of the largest request body that is read, in bytes. With less than 2097152 workers cannot report the largest results, of 1 MiB."`

	MaxInflightBytes int `toml:"max_inflight_bytes" range:"65536..17179869184" doc:"Size of the request bodies that are read at the same time, all together, in bytes: at the worst each takes eight times as much memory. Requests beyond it wait for two seconds and are then refused with 503. At least max_body_bytes."`

	ShutdownTimeoutSeconds int `toml:"shutdown_timeout_seconds" range:"1..600" doc:"Time that requests and passes under way get to finish when the server stops, in seconds."`
}

// Proxies returns the networks in trusted_proxies. It ignores invalid networks, which
// [Config.Validate] rejects.
func (s Server) Proxies() []netip.Prefix {
	var list []netip.Prefix
	for _, text := range commaList(s.TrustedProxies) {
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
	RequestsPerSecond int `toml:"requests_per_second" range:"0..1000000" doc:"Limit of requests per second for each API key or user, with bursts of twice as many. The worker protocol does not count. Further requests are answered with 429. 0: no limit. Without authentication it does not apply."`

	UnknownRequestsPerSecond int `toml:"unknown_requests_per_second" range:"0..1000000" doc:"Requests with wrong credentials or none from one address in a second; twice as many may come at once. More are answered with 429. 0: any number."`

	Creates int `toml:"creates" range:"1..100000" doc:"Requests to create a task or register a template that are served at the same time. As many wait, for a second; more are answered with 503. One caller takes half of them at most; so it is with all the following."`

	PaceCreates bool `toml:"pace_creates" doc:"Whether storing tasks rests between transactions while more tasks wait to be stored than can be and commits take half as long again as usual, so that heartbeats and reports stay quick. It does not where no worker holds steps."`

	BulkCreates int `toml:"bulk_creates" range:"1..1000" doc:"Requests to create many tasks that are served at the same time; others wait for five seconds."`

	Reads int `toml:"reads" range:"0..100000" doc:"Requests for lists, details and pages that are served at the same time; others wait for two seconds. 0: one less than there are connections to the database for them, so that operators find one."`

	Operations int `toml:"operations" range:"1..100000" doc:"Requests of operators to change something that are served at the same time; others wait for five seconds."`

	Claims int `toml:"claims" range:"1..1000000" doc:"Workers that ask this server for steps, or wait for some, at the same time."`

	Reports int `toml:"reports" range:"1..1000000" doc:"Heartbeats and reports of workers that are served at the same time; ten times as many wait, for ten seconds."`

	Connections int `toml:"connections" range:"10..1000000" doc:"Connections to the server at the same time; more are closed at once, and so are those of one address that has half of them, unless it is a proxy in trusted_proxies. Must fit the number of files that the system lets the server open."`

	Namespaces int `toml:"namespaces" range:"1..100000" doc:"Namespaces that have a template. A template in one more is refused with 409; so it is with the next three."`

	Templates int `toml:"templates" range:"1..100000" doc:"Templates of one namespace, by their names."`

	TemplateVersions int `toml:"template_versions" range:"1..100000" doc:"Versions of one template."`

	Handlers int `toml:"handlers" range:"1..100000" doc:"Handlers that the templates of one namespace name."`

	Workers int `toml:"workers" range:"1..10000" doc:"Workers of one namespace that are alive. One more is answered with 503, and tries again. In all namespaces there are 10000 at most."`
}

// Bounds returns the quotas.
func (l Limits) Bounds() tasker.Bounds {
	return tasker.Bounds{Namespaces: l.Namespaces, Templates: l.Templates, Versions: l.TemplateVersions, Handlers: l.Handlers, Workers: l.Workers}
}

// UI configures the operator UI at /ui.
type UI struct {
	Enabled bool `toml:"enabled" doc:"Whether this server has the web page."`

	ReadOnly bool `toml:"read_only" doc:"Whether the web page only shows, and changes nothing. The API is not concerned."`
}

// Database configures the connection to PostgreSQL.
type Database struct {
	URL string `toml:"url" secret:"true" doc:"Where PostgreSQL is: postgres://user:password@host:5432/name, or the keywords of libpq. Of several hosts, the one that takes writes is used. The variable DATABASE_URL is read as well."`

	MaxConnections int `toml:"max_connections" range:"2..1000" doc:"Connections that one server opens at most, and one more that listens. From 8 on they are shared out, so that no flood of requests delays the rest: of 20, 5 are for requests, 3 for new tasks and templates, 2 for heartbeats, 7 for claims and results, 3 for timers."`

	StatementTimeoutMS int `toml:"statement_timeout_ms" range:"100..600000" doc:"Time after which PostgreSQL gives up one statement, in milliseconds."`
}

// Workers configures leases and heartbeats.
type Workers struct {
	LeaseSeconds int `toml:"lease_seconds" range:"3..3600" doc:"Time for which a worker holds a step without a heartbeat, in seconds. Then the attempt is lost. Registered workers keep a longer lease that they have received."`

	HeartbeatIntervalSeconds int `toml:"heartbeat_interval_seconds" range:"1..1200" doc:"Rest between two heartbeats of a worker, in seconds; at most a third of lease_seconds, so that two may get lost."`

	MaxRetryAfterSeconds int `toml:"max_retry_after_seconds" range:"1..31536000" doc:"Longest retry_after_ms with which a failure is retried, in seconds. A step whose worker asks for more waits for an operator."`
}

// MessageQueue configures how workers get steps.
type MessageQueue struct {
	Transport string `toml:"transport" oneof:"postgres rabbitmq" doc:"How workers learn of steps: by claiming (postgres), or also by messages of the broker (rabbitmq)."`

	AutoRecover bool `toml:"auto_recover" doc:"Whether steps that no worker took in time go back into the queue by themselves when a worker for them is alive."`

	QueueTTL string `toml:"queue_ttl" oneof:"unless_saturated always" doc:"Whether a step that has waited for a worker for longer than worker_queue_ttl_ms fails: not while its queue is saturated, that is, its live workers are busy with its steps (unless_saturated), or always (always). A template can override it (lifecycle.queue_ttl)."`

	MaxQueueExpiries int `toml:"max_queue_expiries" range:"1..1000" doc:"How often in a row a step may be taken by no worker in time although one is alive; then it waits for an operator."`

	NoWorkerAfterMS int `toml:"no_worker_after_ms" range:"1000..3600000" doc:"Time for which no worker may be alive for a step that waits, in milliseconds; then it fails and is investigated as worker_unavailable, although worker_queue_ttl_ms is not over. It counts from when the step was enqueued, or from when the last worker with its namespace and handler left, was drained or fell silent, whichever is later."`

	PriorityAgeMS int `toml:"priority_age_ms" range:"0..86400000" doc:"Time after which a step that waits behind more urgent ones is handed out before them by some claims, in milliseconds: so none waits for ever. 0: it waits until nothing is more urgent."`

	RabbitMQ RabbitMQ `toml:"rabbitmq"`
}

// RabbitMQ configures the message broker and the queue timeout.
type RabbitMQ struct {
	URL string `toml:"url" secret:"true" doc:"Where RabbitMQ is: amqp://user:password@host:5672/vhost, or amqps. Needed for the transport rabbitmq."`

	Exchange string `toml:"exchange" doc:"Exchange through which steps are announced to workers."`

	WorkerQueueTTLMS int `toml:"worker_queue_ttl_ms" range:"1000..604800000" doc:"Time that a step waits for a worker, in milliseconds; then it fails and is investigated as worker_unavailable. Applies to both transports. Templates and steps can override it. More than lease_seconds; 2 to 5 times what steps usually take, and not under 2 minutes."`

	SweepGraceMS int `toml:"sweep_grace_ms" range:"0..3600000" doc:"Time after which a step that outlived its limit is failed by the sweep although the broker has not dead-lettered it, in milliseconds. With the transport postgres the sweep does not wait."`

	DeadLetter DeadLetter `toml:"dead_letter"`
}

// DeadLetter configures the handling of messages that no worker consumed in time.
type DeadLetter struct {
	Enabled bool `toml:"enabled" doc:"Whether the broker dead-letters expired messages and this server handles them. Without it the sweep alone finds expired steps."`

	Exchange string `toml:"exchange" doc:"Exchange of dead letters; their queue is named after it, with .queue at the end."`

	TTLMS int `toml:"ttl_ms" range:"60000..2592000000" doc:"Time after which an unhandled dead letter is removed, in milliseconds."`
}

// StalenessDetection configures the staleness sweep.
type StalenessDetection struct {
	Enabled bool `toml:"enabled" doc:"Whether this server sweeps stale tasks."`

	DryRun bool `toml:"dry_run" doc:"Whether the sweep only logs its findings."`

	BatchSize int `toml:"batch_size" range:"1..10000" doc:"Tasks that one sweep moves at most; the rest follow at once."`

	DetectionIntervalSeconds int `toml:"detection_interval_seconds" range:"1..86400" doc:"Rest between two sweeps, in seconds."`

	Thresholds Thresholds `toml:"thresholds"`
}

// Thresholds limits how long a task may stay in a state. Templates can override it.
type Thresholds struct {
	WaitingForDependenciesMinutes int `toml:"waiting_for_dependencies_minutes" range:"1..10080" doc:"Time after which a task that waits for dependencies is stale, in minutes. Templates can override it."`

	WaitingForRetryMinutes int `toml:"waiting_for_retry_minutes" range:"1..10080" doc:"Time after which a task that waits for a retry is stale, in minutes. Templates can override it."`

	StepsInProcessMinutes int `toml:"steps_in_process_minutes" range:"1..10080" doc:"Time after which a task with steps in process is stale, in minutes. Templates can override it. More than lease_seconds, so that a lost worker is noticed first."`

	ErrorRecoveryMinutes int `toml:"error_recovery_minutes" range:"1..10080" doc:"Time for which a task may stand in error without an investigation, in minutes. Then the sweep opens one."`
}

// Breaker configures the circuit breakers of handlers.
type Breaker struct {
	Enabled bool `toml:"enabled" doc:"Whether the steps of a handler are held when its attempts keep failing with one cause, until a probe step succeeds."`

	Failures int `toml:"failures" range:"2..100000" doc:"So many failed attempts with one cause within window_seconds, on all servers together, open a breaker."`

	Tasks int `toml:"tasks" range:"1..100" doc:"Of at least so many tasks the failed attempts must be."`

	SharePercent int `toml:"share_percent" range:"1..100" doc:"So many of 100 attempts of the handler that ended must be among them."`

	WindowSeconds int `toml:"window_seconds" range:"5..300" doc:"For how long attempts count, in seconds."`
}

// Window returns window_seconds.
func (b Breaker) Window() time.Duration { return seconds(b.WindowSeconds) }

// Investigations configures the order of the investigation queue.
type Investigations struct {
	BasePriority BasePriority `toml:"base_priority"`
}

// BasePriority sets the base priority of each reason in the investigation queue.
type BasePriority struct {
	DependencyCycleDetected int `toml:"dependency_cycle_detected" range:"0..525600" doc:"Base priority of dependency_cycle_detected in the investigation queue, in minutes of age. Base priorities hold for investigations that are opened or raised from then on; those that are open keep their place."`

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
	Sinks string `toml:"sinks" doc:"Sinks that receive the events of investigations, separated by commas: log, webhook, rabbitmq. Empty: none. A new sink receives events from then on."`

	Source string `toml:"source" doc:"What events name as their source, such as https://tasker.example.com."`

	RetryAttempts int `toml:"dlq_emit_retry_attempts" range:"0..10" doc:"How often an event that could not be sent is sent again at once. When these are spent, that counts as a failure, and it is sent again later."`

	RetryDelayMS int `toml:"dlq_emit_retry_delay_ms" range:"0..60000" doc:"Rest before an event is sent again at once, in milliseconds."`

	Topics string `toml:"topics" doc:"Attempts and delay of single topics, as topic=attempts/delay_ms with commas between them, such as dlq.entry.created=3/1000. Topics: dlq.entry.created, .updated, .recovered, .resolved."`

	StoreTimeoutMS int `toml:"store_timeout_ms" range:"100..60000" doc:"Time that one operation on the database may take, in milliseconds."`

	MaxPerSecond int `toml:"max_per_second" range:"0..100000" doc:"Events that one sink is sent in a second at most, so that a backlog does not overrun it. 0: no limit."`

	MaxRefusals int `toml:"max_refusals" range:"1..100" doc:"Number of refusals by a sink after which an event is no longer sent, so that it blocks no other."`

	Routes string `toml:"routes" doc:"Routes of messages about incidents and operations: one on each line, or separated by semicolons, as conditions, an arrow and sinks, such as namespace=orders severity=high -> pager, chat. The first that is for a message counts. Conditions: namespace, template, severity (or worse), reason, cause (part of the error), topic. Empty: they are in the log, if that is a sink. See docs/concepts/messages.md."`

	PublicURL string `toml:"public_url" doc:"Where browsers reach this installation, such as https://tasker.example.com: links of messages and answer links begin with it. Empty: auth.oidc.public_url; without that, messages have no links."`

	Webhook Webhook `toml:"webhook"`

	RabbitMQ EventBus `toml:"rabbitmq"`

	Receivers map[string]*Receiver `toml:"receivers"`
}

// Webhook configures a receiver of events over HTTP.
type Webhook struct {
	URL string `toml:"url" secret:"true" doc:"Where events are posted. https, unless private addresses are allowed."`

	Secret string `toml:"secret" secret:"true" doc:"Key with which events are signed (Standard Webhooks). Several, with blanks between them, while one takes the place of another."`

	TimeoutMS int `toml:"timeout_ms" range:"100..60000" doc:"Time that the receiver has to answer, in milliseconds."`

	AllowPrivate bool `toml:"allow_private" doc:"Whether the receiver may be at an address of this machine or of a private network."`

	Concurrency int `toml:"concurrency" range:"1..100" doc:"Tasks whose events are posted at once; those of one task come one after another."`
}

// EventBus configures a RabbitMQ exchange for events.
type EventBus struct {
	URL string `toml:"url" secret:"true" doc:"Where RabbitMQ is. Empty: the one of message_queue.rabbitmq."`

	Exchange string `toml:"exchange" doc:"Topic exchange to which events are published, under their topic. An event that no queue is bound for waits until one is."`
}

// Retention configures how long finished tasks are kept.
type Retention struct {
	FinishedDays int `toml:"finished_days" range:"0..36500" doc:"Days after which complete and cancelled tasks are removed, with their steps and histories; a task that ever had an investigation is evidence and stays. 0: never."`
}

// Redaction configures what is hidden in evidence, events and logs.
type Redaction struct {
	Keys string `toml:"keys" doc:"Keys whose values are hidden in investigations, events and the log, with commas between them. A name without * stands for keys that have it as a word or as several words; with *, which is any letters, and with = before it, for the whole key; ! before a name excepts a whole key, which is shown. Case and separators (- _ . / : and white space) do not count. The same names hold for name=value inside of texts. Empty: nothing is hidden."`

	Paths string `toml:"paths" doc:"Places in the snapshot that are hidden, as JSON paths with commas between them, such as $.task.context.customer.email or $.steps[*].results.result. Empty: none."`
}

// AuthRequired is the mode in which all callers must authenticate.
const AuthRequired = "required"

// Auth configures authentication.
type Auth struct {
	Mode string `toml:"mode" oneof:"auto required" doc:"Whether callers must authenticate: always (required), or unless the server listens on a loopback address (auto). Use required behind a proxy on the same machine."`

	SessionHours int `toml:"session_hours" range:"1..720" doc:"Time after which a browser has to sign in again, in hours."`

	SessionIdleMinutes int `toml:"session_idle_minutes" range:"5..10080" doc:"Time after which a browser that asks for nothing has to sign in again, in minutes."`

	OIDC OIDC `toml:"oidc"`
}

// OIDC configures the identity provider.
type OIDC struct {
	Issuer string `toml:"issuer" doc:"OpenID Connect provider from which people and programs come, by the name that it gives itself, such as https://id.example.com. Empty: everybody signs in with an API key."`

	ClientID string `toml:"client_id" doc:"Name under which the provider knows this installation."`

	ClientSecret string `toml:"client_secret" secret:"true" doc:"Secret that goes with client_id. Empty for a public client."`

	Audience string `toml:"audience" doc:"Audience that tokens for the API must have. Empty: client_id."`

	Algorithms string `toml:"algorithms" doc:"Algorithms with which tokens may be signed, with commas between them. Only those with a public key are possible."`

	Scopes string `toml:"scopes" doc:"Scopes that are asked for when a person signs in, beside openid, with commas between them."`

	SubjectClaim string `toml:"subject_claim" doc:"Claim that names who somebody is; it is recorded with all that they do, after user:. With email the address must be verified."`

	GroupsClaim string `toml:"groups_claim" doc:"Claim with the groups of somebody, as a list or one text."`

	RoleBindings string `toml:"role_bindings" doc:"What members of groups may do, as group=role@namespace with commas between them, such as platform=operator@*, payments=developer@payments. The group * is everybody who comes from the provider. Roles: viewer, operator, developer, worker, admin."`

	PublicURL string `toml:"public_url" doc:"Where browsers reach this installation, such as https://tasker.example.com; the provider sends them back to /ui/sign-in/callback there. Empty: people cannot sign in on the pages with it."`
}

// Options returns the options of package idp.
func (o OIDC) Options() idp.Options {
	return idp.Options{
		Issuer: o.Issuer, ClientID: o.ClientID, ClientSecret: o.ClientSecret, Audience: o.Audience, Algorithms: commaList(o.Algorithms),
		Scopes: commaList(o.Scopes), SubjectClaim: o.SubjectClaim, GroupsClaim: o.GroupsClaim, PublicURL: o.PublicURL,
	}
}

func commaList(text string) []string {
	var list []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}

// SessionLife returns session_hours.
func (a Auth) SessionLife() time.Duration { return time.Duration(a.SessionHours) * time.Hour }

// SessionIdle returns session_idle_minutes.
func (a Auth) SessionIdle() time.Duration { return time.Duration(a.SessionIdleMinutes) * time.Minute }

// Log configures the log on standard error.
type Log struct {
	Level string `toml:"level" oneof:"debug info warn error" doc:"Least level that is written."`

	Format string `toml:"format" oneof:"text json" doc:"How lines are written: text for people, json for programs."`
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
		Investigations: Investigations{BasePriority: defaultBasePriority()},
		Emission: Emission{
			Sinks: "log", Source: "tasker", RetryAttempts: 1, RetryDelayMS: 500, StoreTimeoutMS: 2000, MaxPerSecond: 200, MaxRefusals: 5,
			Webhook: Webhook{TimeoutMS: 5000, Concurrency: 8}, RabbitMQ: EventBus{Exchange: "tasker.events"},
		},
		UI:        UI{Enabled: true},
		Redaction: Redaction{Keys: redact.DefaultKeys},
		Log:       Log{Level: "info", Format: "text"},
	}
}

func defaultBasePriority() BasePriority {
	of := tasker.DefaultBasePriorities()
	return BasePriority{
		DependencyCycleDetected: of[tasker.DependencyCycleDetected], MaxRetriesExceeded: of[tasker.MaxRetriesExceeded],
		StalenessTimeout: of[tasker.StalenessTimeout], WorkerUnavailable: of[tasker.WorkerUnavailable], ManualDLQ: of[tasker.ManualDLQ],
	}
}

// Hosts returns the names in allowed_hosts, in lower case.
func (s Server) Hosts() []string { return commaList(strings.ToLower(s.AllowedHosts)) }

// Finished returns finished_days.
func (r Retention) Finished() time.Duration { return time.Duration(r.FinishedDays) * 24 * time.Hour }

// ShutdownTimeout returns shutdown_timeout_seconds.
func (s Server) ShutdownTimeout() time.Duration { return seconds(s.ShutdownTimeoutSeconds) }

// StatementTimeout returns statement_timeout_ms.
func (d Database) StatementTimeout() time.Duration { return milliseconds(d.StatementTimeoutMS) }

// SweepGrace returns sweep_grace_ms.
func (r RabbitMQ) SweepGrace() time.Duration { return milliseconds(r.SweepGraceMS) }

// TTL returns ttl_ms.
func (d DeadLetter) TTL() time.Duration { return milliseconds(d.TTLMS) }

// Lease returns lease_seconds.
func (w Workers) Lease() time.Duration { return seconds(w.LeaseSeconds) }

// MaxRetryAfter returns max_retry_after_seconds.
func (w Workers) MaxRetryAfter() time.Duration { return seconds(w.MaxRetryAfterSeconds) }

// HeartbeatInterval returns heartbeat_interval_seconds.
func (w Workers) HeartbeatInterval() time.Duration { return seconds(w.HeartbeatIntervalSeconds) }

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
	return seconds(s.DetectionIntervalSeconds)
}

func milliseconds(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

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
