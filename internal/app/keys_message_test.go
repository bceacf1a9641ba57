package app_test

import (
	"encoding/json"
	"strings"

	"tasker.example/tasker"
)

// messageEffects are those of the keys about what people are told.
var messageEffects = map[string]func(*keyTest){
	"emission.routes": func(k *keyTest) {
		r := k.named("chat")
		k.set("topic=case.* -> chat")
		k.say(tasker.CaseOpenedTopic)
		r.wait(1)
	},
	"emission.public_url": func(k *keyTest) {
		r := k.named("chat")
		k.also("emission.receivers.chat.form", "slack")
		k.also("emission.routes", "-> chat")
		k.set("https://tasker.example.com")
		k.say(tasker.CaseOpenedTopic)
		if body := string(r.wait(1)[0].body); !strings.Contains(body, "https://tasker.example.com/ui/cases/1") {
			k.Error(body)
		}
	},
	"emission.receivers.NAME.form": func(k *keyTest) {
		r := k.named("pager")
		k.also("emission.routes", "-> pager")
		k.isSet = true
		k.also("emission.receivers.pager.form", "alertmanager")
		k.say(tasker.CaseOpenedTopic)
		if body := string(r.wait(1)[0].body); !strings.Contains(body, `"alertname":"TaskerCase"`) {
			k.Error(body)
		}
	},
	"emission.receivers.NAME.url": func(k *keyTest) {
		k.isSet = true
		r := k.named("pager")
		k.also("emission.routes", "-> pager")
		k.say(tasker.CaseOpenedTopic)
		r.wait(1)
	},
	"emission.receivers.NAME.key": func(k *keyTest) {
		r := k.named("pager")
		k.also("emission.receivers.pager.form", "pagerduty")
		k.also("emission.routes", "-> pager")
		k.isSet = true
		k.also("emission.receivers.pager.key", "ROUTING")
		k.say(tasker.CaseOpenedTopic)
		var sent struct {
			RoutingKey string `json:"routing_key"`
		}
		if err := json.Unmarshal(r.wait(1)[0].body, &sent); err != nil || sent.RoutingKey != "ROUTING" {
			k.Errorf("%v %+v", err, sent)
		}
	},
	"emission.receivers.NAME.secret": func(k *keyTest) {
		r := k.named("pager")
		k.also("emission.routes", "-> pager")
		k.isSet = true
		k.also("emission.receivers.pager.secret", "open-sesame")
		k.say(tasker.CaseOpenedTopic)
		if h := r.wait(1)[0].header; !strings.HasPrefix(h.Get("webhook-signature"), "v1,") {
			k.Errorf("%v", h)
		}
	},
	"emission.receivers.NAME.allow_private": func(k *keyTest) {
		r := k.named("pager") // at an address of this machine
		k.also("emission.routes", "-> pager")
		k.isSet = true
		k.also("emission.receivers.pager.allow_private", "true")
		k.say(tasker.CaseOpenedTopic)
		r.wait(1)
	},
	"emission.receivers.NAME.topics": func(k *keyTest) {
		r := k.named("pager")
		k.also("emission.routes", "-> pager")
		k.isSet = true
		k.also("emission.receivers.pager.topics", "operation.*")
		k.say(tasker.CaseOpenedTopic, tasker.OperationPausedTopic)
		if body := string(r.wait(1)[0].body); !strings.Contains(body, "tasker.operation.paused") {
			k.Error(body)
		}
	},
}

// named starts the receiver of a sink of messages.
func (k *keyTest) named(name string) *receiver {
	k.Helper()
	r := k.receiver("emission.receivers."+name+".url", nil)
	k.also("emission.receivers."+name+".allow_private", "true")
	k.also("emission.sinks", "log")
	return r
}

// say starts a server, and has something to tell.
func (k *keyTest) say(topics ...string) {
	k.Helper()
	k.start()
	for _, topic := range topics {
		k.exec(`INSERT INTO tasker.messages (topic, subject_kind, subject_id, namespaces, data)
			VALUES ($1, 'incident', gen_random_uuid(), '{n}', '{"summary": "stuck", "severity": "high", "path": "/ui/cases/1", "entries": 5}')`, topic)
	}
}
