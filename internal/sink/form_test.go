package sink

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"tasker.example/tasker"
)

// forms lists every form.
var forms = []Format{CloudEvents, PagerDuty, Alertmanager, Slack, Teams}

var update = flag.Bool("update", false, "write the golden payloads anew")

var (
	lead     = tasker.ID{1: 1, 15: 7}
	incident = tasker.ID{1: 2, 15: 9}
	began    = time.Date(2026, 11, 22, 3, 24, 21, 0, time.UTC)
	sent     = began.Add(30 * time.Second)
)

// aMessage is one about an incident of two cases.
func aMessage(topic string, change ...func(*tasker.NotificationData)) tasker.Event {
	m := tasker.NotificationData{
		Summary: "orders: 3,800 tasks stuck: fulfil > charge: HTTP 503 from <https://pay.example> & co", Text: "HTTP 503 from <https://pay.example> & co `x`", Severity: tasker.High,
		Namespace: "orders", Template: "fulfil", Step: "charge", Reason: tasker.MaxRetriesExceeded, ErrorType: "GatewayError", Case: &lead, State: "escalating",
		Entries: 3800, Waiting: 3700, FailedAgain: 100, Cases: 2, CasesOpen: 2, BeganAt: began, Path: "/ui/cases/" + lead.String(), Owners: []string{"anna"},
		Members: []tasker.MessageMember{{Case: lead, State: "escalating", Severity: tasker.High, Template: "fulfil", Step: "charge", Text: "HTTP 503", Entries: 3500}},
	}
	for _, f := range change {
		f(&m)
	}
	doc, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return tasker.Event{
		UUID: tasker.ID{15: 1}, Position: 42, Topic: topic, At: sent, Data: doc,
		Subject: &tasker.Subject{Kind: tasker.IncidentSubject, ID: incident, DedupKey: "tasker:prod:incident:" + incident.String()},
	}
}

// Each form of each kind of message is as it was looked at. The files are what receivers get.
func TestForms(t *testing.T) {
	o := WebhookOptions{Source: "prod", Key: "R0UTINGKEY", PublicURL: "https://tasker.example.com/"}
	for _, f := range forms {
		for _, topic := range []string{tasker.CaseOpenedTopic, tasker.CaseOwnedTopic, tasker.CaseResolvedTopic} {
			body, kind, err := f.encode(aMessage(topic), o, sent)
			if err != nil {
				t.Fatal(err)
			}
			if want := map[bool]string{true: "application/cloudevents+json", false: "application/json"}[f == CloudEvents]; kind != want {
				t.Errorf("%s is sent as %s", f, kind)
			}
			var doc any
			if err := json.Unmarshal(body, &doc); err != nil {
				t.Fatal(err)
			}
			pretty, err := json.MarshalIndent(doc, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", "forms", fmt.Sprintf("%s.%s.json", f, topic))
			if *update {
				if err := os.WriteFile(path, append(pretty, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil || string(want) != string(pretty)+"\n" {
				t.Errorf("%s is not what %s has (%v):\n%s", topic, path, err, pretty)
			}
		}
	}
}

// A message that is too long is cut to what the receiver takes.
func TestFormsAreCut(t *testing.T) {
	long := strings.Repeat("äöü<&*", 20_000)
	e := aMessage(tasker.CaseOpenedTopic, func(m *tasker.NotificationData) {
		m.Summary, m.Text = long, long
		for range 100 {
			m.Owners = append(m.Owners, strings.Repeat("\u0001", 255)) // of six bytes each in JSON
		}
		for range tasker.MaxMessageMembers {
			m.Members = append(m.Members, tasker.MessageMember{Template: "fulfil", Text: strings.Repeat("ä<", 2000)})
		}
	})
	for f, check := range map[Format]func(body []byte){
		PagerDuty: func(body []byte) {
			var p pagerDutyEvent
			if err := json.Unmarshal(body, &p); err != nil || utf8.RuneCountInString(p.Payload.Summary) != 1024 {
				t.Errorf("%v: summary of %d characters", err, utf8.RuneCountInString(p.Payload.Summary))
			}
		},
		Slack: func(body []byte) {
			var p slackMessage
			if err := json.Unmarshal(body, &p); err != nil || len(p.Blocks) > 4 {
				t.Errorf("%v: %d blocks", err, len(p.Blocks))
			}
			for _, b := range p.Blocks {
				if b.Text != nil && utf8.RuneCountInString(b.Text.Text) > 3000 {
					t.Errorf("a section of %d characters", utf8.RuneCountInString(b.Text.Text))
				}
			}
		},
		Teams: func(body []byte) {
			if len(body) > 20_000 || len(body) < 500 {
				t.Errorf("a card of %d bytes", len(body))
			}
		},
		Alertmanager: func(body []byte) {
			if len(body) > 1<<20 {
				t.Errorf("alerts of %d bytes", len(body))
			}
		},
	} {
		body, _, err := f.encode(e, WebhookOptions{}, sent)
		if err != nil || !utf8.Valid(body) {
			t.Fatalf("%s: %v", f, err)
		}
		check(body)
	}
}

// An event of an investigation is no message: a pager refuses it.
func TestFormsTakeMessagesOnly(t *testing.T) {
	for _, f := range forms[1:] {
		if _, _, err := f.encode(tasker.Event{Topic: tasker.EntryCreatedTopic, Data: []byte("{}")}, WebhookOptions{}, sent); !IsRefused(err) {
			t.Errorf("%s: %v", f, err)
		}
		if _, _, err := f.encode(tasker.Event{Topic: tasker.CaseOpenedTopic, Data: []byte("["), Subject: &tasker.Subject{}}, WebhookOptions{}, sent); !IsRefused(err) {
			t.Errorf("%s: data that is not JSON: %v", f, err)
		}
	}
}

// A receiver gets what its form says, at its address, and its key is not shown in an error.
func TestReceiversOfForms(t *testing.T) {
	var path, kind string
	var body []byte
	status := http.StatusAccepted
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, kind = r.URL.Path, r.Header.Get("Content-Type")
		body = make([]byte, r.ContentLength)
		_, _ = r.Body.Read(body)
		w.WriteHeader(status)
		fmt.Fprint(w, "you said R0UTINGKEY")
	}))
	defer s.Close()
	for f, want := range map[Format]string{PagerDuty: "/", Alertmanager: "/api/v2/alerts", Slack: "/", Teams: "/"} {
		one, err := NewWebhook(WebhookOptions{Name: "night", Form: f, URL: s.URL + "/", Key: "R0UTINGKEY", AllowPrivate: true})
		if err != nil {
			t.Fatal(err)
		}
		if one.Name() != "night" {
			t.Error(one.Name())
		}
		status = http.StatusAccepted
		if err := one.Emit(t.Context(), aMessage(tasker.CaseOpenedTopic)); err != nil || path != want || kind != "application/json" || !json.Valid(body) {
			t.Errorf("%s: %v, %s %s %s", f, err, path, kind, body)
		}
		status = http.StatusBadRequest
		if err := one.Emit(t.Context(), aMessage(tasker.CaseOpenedTopic)); !IsRefused(err) || strings.Contains(err.Error(), "R0UTING") {
			t.Errorf("%s: %v", f, err)
		}
		_, repeats := one.(Repeating)
		if repeats != (f == Alertmanager) {
			t.Errorf("%s repeats: %v", f, repeats)
		}
	}
	if _, err := NewWebhook(WebhookOptions{Form: PagerDuty, Key: "x"}); err != nil {
		t.Errorf("PagerDuty needs no address: %v", err)
	}
}

// The installation is part of the key of what has no key of its own.
func TestKeysOfMessages(t *testing.T) {
	e := aMessage(tasker.OperationPausedTopic)
	e.Subject = &tasker.Subject{Kind: tasker.OperationSubject, ID: lead}
	body, _, err := PagerDuty.encode(e, WebhookOptions{Source: "prod"}, sent)
	if err != nil || !strings.Contains(string(body), `"dedup_key":"tasker:prod:operation:`+lead.String()+`"`) {
		t.Errorf("%v: %s", err, body)
	}
}

// The end of what Alertmanager was told of is an end of the same alert: its labels do not change.
func TestTheLabelsOfAnAlertStay(t *testing.T) {
	for _, topics := range [][]string{
		{tasker.HoldBeganTopic, tasker.HoldEndingTopic, tasker.HoldFailedTopic, tasker.HoldEndedTopic},
		{tasker.BreakerOpenedTopic, tasker.BreakerEndingTopic, tasker.BreakerClosedTopic},
		{tasker.OperationPausedTopic, tasker.OperationDoneTopic},
	} {
		labels := map[string]bool{}
		for i, topic := range topics {
			e := aMessage(topic)
			e.Subject = &tasker.Subject{Kind: tasker.HoldSubject, ID: lead}
			e.Data = []byte(fmt.Sprintf(`{"summary": "s", "severity": %q, "namespace": "orders", "began_at": "2026-11-22T03:24:21Z"}`, []tasker.Severity{tasker.Low, tasker.Medium, tasker.High, tasker.Low}[i]))
			body, _, err := Alertmanager.encode(e, WebhookOptions{Source: "prod"}, sent)
			if err != nil {
				t.Fatal(err)
			}
			var alerts []struct{ Labels map[string]string }
			if err := json.Unmarshal(body, &alerts); err != nil || len(alerts) != 1 {
				t.Fatalf("%v: %s", err, body)
			}
			labels[fmt.Sprint(alerts[0].Labels)] = true
		}
		if len(labels) != 1 {
			t.Errorf("%v have the labels %v", topics, labels)
		}
	}
}
