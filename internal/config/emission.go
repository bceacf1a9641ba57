package config

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"tasker.example/tasker"
)

// The names of the built-in sinks.
const (
	LogSink     = "log"
	WebhookSink = "webhook"
	RabbitSink  = "rabbitmq"
)

// SinkNames returns the names listed in the key sinks.
func (e Emission) SinkNames() []string { return splitList(e.Sinks) }

// Retry is a retry policy: the number of retries and the delay before each.
type Retry struct {
	Attempts int
	Delay    time.Duration
}

// Retry returns the retry policy for topics that have none of their own.
func (e Emission) Retry() Retry {
	return Retry{Attempts: e.RetryAttempts, Delay: millisecondsToDuration(e.RetryDelayMS)}
}

// TopicRetries parses the retry policies in the key topics. An error names the invalid part.
func (e Emission) TopicRetries() (map[string]Retry, error) {
	out := map[string]Retry{}
	for part := range strings.SplitSeq(e.Topics, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		topic, policy, _ := strings.Cut(part, "=")
		attempts, delay, found := strings.Cut(policy, "/")
		n, err := strconv.Atoi(strings.TrimSpace(attempts))
		ms, err2 := strconv.Atoi(strings.TrimSpace(delay))
		topic = strings.TrimSpace(topic)
		switch {
		case !found || err != nil || err2 != nil:
			return nil, fmt.Errorf("must be topic=attempts/delay_ms, such as dlq.entry.created=3/1000, not %q", part)
		case !slices.Contains(tasker.Topics(), topic):
			return nil, fmt.Errorf("unknown topic %q: must be one of %s", topic, strings.Join(tasker.Topics(), ", "))
		case n < 0 || n > 10 || ms < 0 || ms > 60_000:
			return nil, fmt.Errorf("%s: attempts must be from 0 to 10 and delay_ms from 0 to 60000", topic)
		}
		out[topic] = Retry{Attempts: n, Delay: millisecondsToDuration(ms)}
	}
	return out, nil
}

// BusURL returns the URL of the broker for events.
func (c Config) BusURL() string { return cmp.Or(c.Emission.RabbitMQ.URL, c.MessageQueue.RabbitMQ.URL) }

// StoreTimeout returns store_timeout_ms.
func (e Emission) StoreTimeout() time.Duration { return millisecondsToDuration(e.StoreTimeoutMS) }

// Timeout returns timeout_ms.
func (w Webhook) Timeout() time.Duration { return millisecondsToDuration(w.TimeoutMS) }

// checkEmission adds a fault for each invalid value in the section emission.
func (c Config) checkEmission(add func(name, format string, args ...any)) {
	e := c.Emission
	for i, name := range e.SinkNames() {
		if !slices.Contains([]string{LogSink, WebhookSink, RabbitSink}, name) {
			add("emission.sinks", "must contain only log, webhook and rabbitmq, not %q", name)
		}
		if slices.Contains(e.SinkNames()[:i], name) {
			add("emission.sinks", "contains %s twice", name)
		}
	}
	e.checkMessages(add)
	if _, err := e.TaskSubscriptions(); err != nil {
		add("emission.task_events", "%v", err)
	}
	if _, err := e.TopicRetries(); err != nil {
		add("emission.topics", "%v", err)
	}
	if slices.Contains(e.SinkNames(), WebhookSink) {
		if wrong := checkWebhook(e.Webhook); wrong != "" {
			add("emission.webhook.url", "%s", wrong)
		}
	}
	if slices.Contains(e.SinkNames(), RabbitSink) {
		if wrong := checkAMQPURL(c.BusURL()); wrong != "" {
			add("emission.rabbitmq.url", "%s", wrong)
		}
	}
	if x := e.RabbitMQ.Exchange; !exchangePattern.MatchString(x) || strings.HasPrefix(x, "amq.") {
		add("emission.rabbitmq.exchange", "must be at most 200 letters, digits, dots, dashes, colons and "+
			"underscores and not begin with amq., not %q", x)
	}
}

// checkWebhook describes what is wrong with the URL of a webhook, or returns "". The description
// never contains the URL, which may contain a key.
func checkWebhook(w Webhook) string {
	if w.URL == "" {
		return "is missing: the webhook sink requires it"
	}
	u, err := url.Parse(w.URL)
	switch {
	case err != nil || u.Host == "":
		return "must be a URL such as https://receiver.example.com/tasker"
	case u.Scheme != "https" && (u.Scheme != "http" || !w.AllowPrivate):
		return "must begin with https://; http:// is only for receivers in a private network, with " +
			"emission.webhook.allow_private"
	case u.User != nil:
		return "must not contain a user or password: events are signed instead"
	}
	return ""
}

// redactedURL returns a webhook's URL without the parts that may contain a key.
func redactedURL(text string) string {
	u, err := url.Parse(text)
	if err != nil || text == "" {
		return ""
	}
	shown := url.URL{Scheme: u.Scheme, Host: u.Host}
	if strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		shown.Path = "/" + hidden
	}
	return shown.String()
}
