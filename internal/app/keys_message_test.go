package app_test

import (
	"encoding/json"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
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
		s := k.say(tasker.CaseOpenedTopic)
		if body := string(r.wait(1)[0].body); !strings.Contains(body, "https://tasker.example.com/ui/cases/1") {
			k.Error(body)
		}
		if link := k.answerLink(s); !strings.HasPrefix(link, "https://tasker.example.com/ui/answer/tsl_") {
			k.Errorf("the link is %q", link)
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
func (k *keyTest) say(topics ...string) *server {
	k.Helper()
	s := k.start()
	for _, topic := range topics {
		k.exec(`INSERT INTO tasker.messages (topic, subject_kind, subject_id, namespaces, data)
			VALUES ($1, 'incident', gen_random_uuid(), '{n}', '{"summary": "stuck", "severity": "high", "path": "/ui/cases/1", "entries": 5}')`, topic)
	}
	return s
}

// answerLink makes an answer link with the API of a server, and returns its address.
func (k *keyTest) answerLink(s *server) string {
	k.Helper()
	k.open()
	_, _, err := k.tasks.RegisterTemplate(k.Context(), tasker.Template{
		Namespace: "n", Name: "ask", Version: "1.0.0", Steps: []tasker.StepTemplate{{Name: "approve", Type: tasker.ExternalStep, Retry: tasker.DefaultRetry()}},
	}, "")
	k.must(err)
	made, err := k.tasks.CreateTasks(k.Context(), []tasker.NewTask{{Namespace: "n", Name: "ask"}})
	k.must(err)
	c, err := client.New(s.url)
	k.must(err)
	_, err = c.AssignStep(k.Context(), made[0].TaskUUID, "approve", apiv1.AssignStep{Assignee: "ann"})
	k.must(err)
	l, err := c.CreateAnswerLink(k.Context(), made[0].TaskUUID, "approve", apiv1.CreateAnswerLink{})
	k.must(err)
	if l.URL == nil {
		return ""
	}
	return *l.URL
}
