package config

import (
	"cmp"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/notice"
)

// Receiver configures a named sink of notifications.
type Receiver struct {
	Form string `toml:"form" oneof:"cloudevents pagerduty alertmanager slack teams" doc:"Format in which the receiver expects messages: cloudevents, pagerduty (Events API v2), alertmanager (its API v2), slack (an incoming webhook) or teams (a workflow that posts a card). NAME is the name of the sink: lowercase letters and digits, at most 32."`

	URL string `toml:"url" secret:"true" doc:"URL to which messages are posted. https, unless private addresses are allowed. For Alertmanager the URL needs no path; for PagerDuty it may be empty."`

	Key string `toml:"key" secret:"true" doc:"Routing key of PagerDuty: the integration key of a service."`

	Secret string `toml:"secret" secret:"true" doc:"Key with which messages are signed (Standard Webhooks), as emission.webhook.secret. Empty: they are not."`

	AllowPrivate bool `toml:"allow_private" doc:"Whether the receiver may have an address of this machine or of a private network."`

	Topics string `toml:"topics" doc:"Topics of the messages that the sink receives, separated by commas; case.* matches all that begin with case. Empty: all for cloudevents; for pagerduty and alertmanager case.*, operation.paused, hold.*, breaker.*; for slack and teams also digest.* and step.reminder."`
}

// TopicList returns the topics listed in the key topics.
func (r Receiver) TopicList() []string { return splitList(r.Topics) }

const (
	pagerDutyForm = "pagerduty"
	maxReceivers  = 50
	receivers     = "emission.receivers."
)

// receiverName matches valid names of receivers. It allows no underscore, so that it is clear
// where the name in an environment variable ends.
var receiverName = regexp.MustCompile(`^[a-z][a-z0-9]{0,31}$`)

func newReceiver() *Receiver { return &Receiver{Form: "cloudevents"} }

// ReceiverNames returns the sorted names of the receivers.
func (e Emission) ReceiverNames() []string { return slices.Sorted(maps.Keys(e.Receivers)) }

// RouteList parses the key routes. An error names the invalid part.
func (e Emission) RouteList() ([]notice.Route, error) { return notice.ParseRoutes(e.Routes) }

// LinkBase returns the base URL for links to the UI, or "" if none is configured.
func (c Config) LinkBase() string { return cmp.Or(c.Emission.PublicURL, c.Auth.OIDC.PublicURL) }

// addReceiver adds the receiver that a key belongs to, unless it exists or its name is invalid.
func (c *Config) addReceiver(key string) {
	rest, ok := strings.CutPrefix(key, receivers)
	name, _, _ := strings.Cut(rest, ".")
	if !ok || !receiverName.MatchString(name) || c.Emission.Receivers[name] != nil {
		return
	}
	all := maps.Clone(c.Emission.Receivers)
	if all == nil {
		all = map[string]*Receiver{}
	}
	all[name] = newReceiver()
	c.Emission.Receivers = all
}

// addEnvironmentReceivers adds the receivers that environment variables configure.
func (c *Config) addEnvironmentReceivers(environ []string) {
	for _, variable := range environ {
		name, text, _ := strings.Cut(variable, "=")
		rest, ok := strings.CutPrefix(name, toEnvName(receivers))
		word, field, _ := strings.Cut(rest, "_")
		if ok && field != "" && text != "" && word == strings.ToUpper(word) {
			c.addReceiver(receivers + strings.ToLower(word))
		}
	}
}

// completeReceivers sets default values in the receivers that a file defines.
func (c *Config) completeReceivers() {
	for name, r := range c.Emission.Receivers {
		if r == nil {
			r = newReceiver()
			c.Emission.Receivers[name] = r
		}
		r.Form = cmp.Or(r.Form, newReceiver().Form)
	}
}

// checkMessages adds a fault for each invalid route or receiver of notifications.
func (e Emission) checkMessages(add func(name, format string, args ...any)) {
	known := slices.Concat(e.SinkNames(), e.ReceiverNames())
	if len(e.Receivers) > maxReceivers {
		add("emission.receivers", "has %d receivers; the limit is %d", len(e.Receivers), maxReceivers)
	}
	for _, name := range e.ReceiverNames() {
		e.Receivers[name].check(name, add)
	}
	routes, err := e.RouteList()
	if err != nil {
		add("emission.routes", "%v", err)
	}
	for i, r := range routes {
		for _, name := range r.Sinks {
			if !slices.Contains(known, name) {
				add("emission.routes",
					"route %d: unknown sink %q: must be one of %s", i+1, name, strings.Join(known, ", "))
			}
		}
		if r.Topic != "" && !isKnownTopic(r.Topic) {
			add("emission.routes", "route %d: unknown message topic %q", i+1, r.Topic)
		}
	}
	if u, err := url.Parse(e.PublicURL); e.PublicURL != "" && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery != "") {
		add("emission.public_url", "must be a URL such as https://tasker.example.com, not %q", e.PublicURL)
	}
}

func (r Receiver) check(name string, add func(name, format string, args ...any)) {
	section := receivers + name
	switch {
	case !receiverName.MatchString(name):
		add(section, "must have a name of at most 32 lower-case letters and digits, beginning with a letter")
	case slices.Contains([]string{LogSink, WebhookSink, RabbitSink}, name):
		add(section, "must have another name: %s is a built-in sink", name)
	}
	if r.URL != "" || r.Form != pagerDutyForm {
		switch wrong := checkWebhook(Webhook{URL: r.URL, AllowPrivate: r.AllowPrivate}); {
		case r.URL == "":
			add(section+".url", "is missing")
		case wrong != "":
			add(section+".url", "%s", strings.ReplaceAll(wrong, "emission.webhook.", section+"."))
		}
	}
	switch {
	case r.Form == pagerDutyForm && r.Key == "":
		add(section+".key", "is missing: PagerDuty requires the integration key of a service")
	case r.Form != pagerDutyForm && r.Key != "":
		add(section+".key", "is only for the form pagerduty")
	}
	for _, topic := range r.TopicList() {
		if !isKnownTopic(topic) {
			add(section+".topics", "unknown message topic %q", topic)
		}
	}
}

// laterTopics are prefixes under which any topic is accepted, even one that [tasker.MessageTopics]
// does not list.
var laterTopics = []string{"hold.", "breaker."}

// isKnownTopic reports whether a pattern, which may end with *, matches a topic of notifications.
func isKnownTopic(pattern string) bool {
	return slices.ContainsFunc(tasker.MessageTopics(), func(t string) bool { return notice.TopicMatches(pattern, t) }) ||
		slices.ContainsFunc(laterTopics, func(head string) bool { return strings.HasPrefix(pattern, head) })
}

// redactReceivers returns copies of the receivers without secrets.
func redactReceivers(all map[string]*Receiver) map[string]*Receiver {
	out := make(map[string]*Receiver, len(all))
	for name, r := range all {
		shown := *r
		shown.URL = redactedURL(r.URL)
		for _, secret := range []*string{&shown.Key, &shown.Secret} {
			if *secret != "" {
				*secret = hidden
			}
		}
		out[name] = &shown
	}
	return out
}
