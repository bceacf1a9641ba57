package config

import (
	"fmt"
	"net"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/idp"
	"tasker.example/tasker/internal/redact"
)

// Validate returns an Invalid error that lists all faults, with a slice of [tasker.Fault] as details, or
// nil if a server can start with the configuration.
func (c Config) Validate() error {
	var faults []tasker.Fault
	add := func(name, format string, args ...any) {
		faults = append(faults, tasker.Fault{Path: name, Message: fmt.Sprintf(format, args...)})
	}
	for _, f := range c.listFields() {
		if wrong := f.checkBounds(); wrong != "" {
			add(f.name, "%s", wrong)
		}
	}
	if wrong := checkListen(c.Server.Listen); wrong != "" {
		add("server.listen", "%s", wrong)
	}
	if sv := c.Server; sv.MaxInflightBytes < sv.MaxBodyBytes {
		add("server.max_inflight_bytes", "must be at least server.max_body_bytes (%d), not %d: otherwise the "+
			"largest body could never be read", sv.MaxBodyBytes, sv.MaxInflightBytes)
	}
	if e := c.Server.Environment; e != "" && !environmentPattern.MatchString(e) {
		add("server.environment", "must be letters, digits, dots, dashes and underscores, not %q", e)
	}
	if wrong := checkURL(c.Database.URL); wrong != "" {
		add("database.url", "%s", wrong)
	}
	if w := c.Workers; 3*w.HeartbeatIntervalSeconds > w.LeaseSeconds {
		add("workers.heartbeat_interval_seconds",
			"must be at most a third of workers.lease_seconds (%d), not %d, so that a worker may miss two heartbeats",
			w.LeaseSeconds, w.HeartbeatIntervalSeconds)
	}
	if q := c.MessageQueue; q.RabbitMQ.WorkerQueueTTLMS <= 1000*c.Workers.LeaseSeconds {
		add("message_queue.rabbitmq.worker_queue_ttl_ms",
			"must be more than workers.lease_seconds (%d seconds), not %d, so that workers have time to return",
			c.Workers.LeaseSeconds, q.RabbitMQ.WorkerQueueTTLMS)
	}
	c.Server.checkWire(add)
	c.checkEmission(add)
	c.Auth.OIDC.check(add)
	if wrong := checkBroker(c.MessageQueue); wrong != "" {
		add("message_queue.rabbitmq.url", "%s", wrong)
	}
	r := c.MessageQueue.RabbitMQ
	for _, x := range [][2]string{{"message_queue.rabbitmq.exchange", r.Exchange}, {"message_queue.rabbitmq.dead_letter.exchange", r.DeadLetter.Exchange}} {
		if !exchangePattern.MatchString(x[1]) || strings.HasPrefix(x[1], "amq.") {
			add(x[0], "must be at most 200 letters, digits, dots, dashes, colons and underscores and not begin "+
				"with amq., not %q", x[1])
		}
	}
	if r.Exchange != "" && r.Exchange == r.DeadLetter.Exchange {
		add("message_queue.rabbitmq.dead_letter.exchange", "must differ from the exchange for steps, %q", r.Exchange)
	}
	if minutes := c.StalenessDetection.Thresholds.StepsInProcessMinutes; 60*minutes <= c.Workers.LeaseSeconds {
		add("staleness_detection.thresholds.steps_in_process_minutes",
			"must be more than workers.lease_seconds (%d seconds), not %d: a lost worker must be detected before "+
				"its task is stale", c.Workers.LeaseSeconds, minutes)
	}
	if _, err := redact.New(c.Redaction.Keys, ""); err != nil {
		add("redaction.keys", "%v", err)
	}
	if _, err := redact.New("", c.Redaction.Paths); err != nil {
		add("redaction.paths", "%v", err)
	}
	return newFaultsError("the configuration", faults)
}

// checkWire adds a fault for each invalid setting of TLS or proxies.
func (s Server) checkWire(add func(name, format string, args ...any)) {
	if (s.TLSCertFile == "") != (s.TLSKeyFile == "") {
		add("server.tls_cert_file", "and server.tls_key_file must be set together")
	} else if s.TLSCertFile == "" && s.TLSClientCAFile != "" {
		add("server.tls_client_ca_file", "requires server.tls_cert_file: there are no client certificates without TLS")
	}
	for _, text := range splitList(s.TrustedProxies) {
		if _, err := parseNetwork(text); err != nil {
			add("server.trusted_proxies", "must contain only addresses and networks such as 10.0.0.0/8, not %q", text)
		}
	}
}

// check adds a fault for each invalid setting of the identity provider.
func (o OIDC) check(add func(name, format string, args ...any)) {
	const section = "auth.oidc"
	if o.Issuer == "" {
		if o.ClientID != "" || o.RoleBindings != "" || o.PublicURL != "" {
			add(section+".issuer", "is missing: the other keys of %s require it", section)
		}
		return
	}
	if _, err := idp.New(o.Options()); err != nil {
		add(section, "%v", err)
	}
	switch bindings, err := access.ParseBindings(o.RoleBindings); {
	case err != nil:
		add(section+".role_bindings", "%v", err)
	case len(bindings) == 0:
		add(section+".role_bindings", "is missing: users of the provider would have no permissions")
	}
}

// checkBounds describes how the value violates the limits in its tags, or returns "".
func (f field) checkBounds() string {
	if low, high, ok := f.limits(); ok && f.value.Kind() == reflect.Int {
		if n := int(f.value.Int()); n < low || n > high {
			return fmt.Sprintf("must be from %d to %d, not %d", low, high, n)
		}
	}
	if words := f.allowedWords(); len(words) > 0 && !slices.Contains(words, f.value.String()) {
		return fmt.Sprintf("must be %s, not %q", formatList(words), f.value.String())
	}
	return ""
}

var environmentPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)

// exchangePattern matches valid exchange names. It allows at most 200 bytes, so that a name with a
// queue name appended fits AMQP's limit of 255.
var exchangePattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,199}$`)

// checkBroker describes what is wrong with the broker's URL, or returns "". The description never
// contains the URL.
func checkBroker(q MessageQueue) string {
	text := q.RabbitMQ.URL
	switch {
	case text == "" && q.Transport == "rabbitmq":
		return "is missing: the rabbitmq transport requires it"
	case text == "":
		return ""
	}
	return checkAMQPURL(text)
}

func checkAMQPURL(text string) string {
	switch {
	case text == "":
		return "is missing: the rabbitmq sink requires this or message_queue.rabbitmq.url"
	case !strings.HasPrefix(text, "amqp://") && !strings.HasPrefix(text, "amqps://"):
		return "must begin with amqp:// or amqps://"
	}
	if _, err := url.Parse(text); err != nil {
		return "is not a valid URL: special characters in the password must be percent-encoded"
	}
	return ""
}

func checkListen(address string) string {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Sprintf("must be host:port, such as 127.0.0.1:8080, not %q", address)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Sprintf("must end with a port from 0 to 65535, not %q", port)
	}
	return ""
}

// checkURL describes what is wrong with a database URL, or returns "". The description never
// contains the URL, which may contain a password even if it is malformed.
func checkURL(text string) string {
	if text == "" {
		return "is missing: set it in the file, the variable TASKER_DATABASE_URL or the flag --database-url"
	}
	if !isURL(text) {
		if strings.Contains(text, "=") {
			return "" // keywords, as libpq has them
		}
		return "must begin with postgres:// or be a list of keywords such as host=… dbname=…"
	}
	if _, err := url.Parse(text); err != nil {
		return "is not a valid URL: special characters in the password must be percent-encoded"
	}
	return ""
}

func isURL(text string) bool {
	return strings.HasPrefix(text, "postgres://") || strings.HasPrefix(text, "postgresql://")
}

const hidden = "REDACTED"

// keywordPassword matches the password in a libpq keyword/value connection string. If the closing
// quote is missing, it matches the rest of the text.
var keywordPassword = regexp.MustCompile(`(?i)((?:ssl)?password\s*=\s*)('(?:[^'\\]|\\.)*'?|(?:[^\s'\\]|\\.)+)`)

// Redacted returns the configuration without passwords and keys.
func (c Config) Redacted() Config {
	c.Database.URL = redactURL(c.Database.URL)
	c.MessageQueue.RabbitMQ.URL = redactURL(c.MessageQueue.RabbitMQ.URL)
	c.Emission.RabbitMQ.URL = redactURL(c.Emission.RabbitMQ.URL)
	c.Emission.Webhook.URL = redactedURL(c.Emission.Webhook.URL)
	if c.Emission.Webhook.Secret != "" {
		c.Emission.Webhook.Secret = hidden
	}
	c.Emission.Receivers = redactReceivers(c.Emission.Receivers)
	if c.Auth.OIDC.ClientSecret != "" {
		c.Auth.OIDC.ClientSecret = hidden
	}
	return c
}

func redactURL(text string) string {
	if text == "" {
		return ""
	}
	if !isURL(text) && !strings.HasPrefix(text, "amqp") {
		if !strings.Contains(text, "=") {
			return hidden
		}
		return keywordPassword.ReplaceAllString(text, "${1}"+hidden)
	}
	u, err := url.Parse(text)
	if err != nil || u.Fragment != "" || strings.Count(text, "@") > 1 || (u.User == nil && strings.Contains(text, "@")) {
		return hidden // a special character may have ended the password early
	}
	if _, has := u.User.Password(); has {
		u.User = url.UserPassword(u.User.Username(), hidden)
	}
	if query, err := url.QueryUnescape(u.RawQuery); err != nil || strings.Contains(strings.ToLower(query), "password") {
		u.RawQuery = hidden
	}
	return u.String()
}

// formatName truncates and escapes a name for an error message.
func formatName(name string) string {
	if len(name) > 128 {
		name = name[:128] + "…"
	}
	quoted := strconv.Quote(name)
	return quoted[1 : len(quoted)-1]
}

func newFault(name, message string) error {
	return newFaultsError("the configuration", []tasker.Fault{{Path: formatName(name), Message: message}})
}

// newFaultsError returns an Invalid error with a line for each fault, or nil if there is none.
func newFaultsError(where string, faults []tasker.Fault) error {
	if len(faults) == 0 {
		return nil
	}
	var b strings.Builder
	b.WriteString(where + " is wrong:")
	for _, f := range faults {
		b.WriteString("\n  " + f.String())
	}
	return (&tasker.Error{Code: tasker.Invalid, Message: b.String()}).WithDetails(faults)
}
