package sink

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/payload"
)

// A Format is the message format of a receiver.
type Format string

// Formats.
const (
	CloudEvents  Format = "cloudevents"
	PagerDuty    Format = "pagerduty"    // Events API v2
	Alertmanager Format = "alertmanager" // POST /api/v2/alerts
	Slack        Format = "slack"        // incoming webhooks
	Teams        Format = "teams"        // an adaptive card for a workflow
)

// DefaultTopics returns the topics that a sink with this format receives by default, or nil for
// all. Pagers receive notifications that require action; chats also receive digests and reminders.
func (f Format) DefaultTopics() []string {
	pager := []string{"case.*", tasker.OperationPausedTopic, "hold.*", "breaker.*", tasker.TestTopic}
	switch f {
	case PagerDuty, Alertmanager:
		return pager
	case Slack, Teams:
		return append(pager, "digest.*", tasker.StepReminderTopic)
	default:
		return nil
	}
}

// pagerDutyURL is PagerDuty's default endpoint.
const pagerDutyURL = "https://events.pagerduty.com/v2/enqueue"

// Limits of the receivers, in characters for texts and in bytes for bodies.
const (
	pagerDutySummary = 1024
	slackText        = 2900 // of 3,000 in a section
	teamsBody        = 20_000
	messageText      = 2000
	alertLife        = 5 * time.Minute // lifetime of an alert that is not repeated
	alertEvery       = time.Minute
)

// encode encodes a notification in the format, shortened if necessary, and returns its media type.
func (f Format) encode(e tasker.Event, o WebhookOptions, now time.Time) (body []byte, kind string, err error) {
	if f == "" || f == CloudEvents {
		body, err = CloudEvent(e, o.Source)
		return body, mediaType, err
	}
	if e.Subject == nil {
		return nil, "", newRefusedError(fmt.Errorf("%s is not a notification: webhook format %s supports only "+
			"notifications", describe(e), f))
	}
	var m tasker.NotificationData
	if err := json.Unmarshal(e.Data, &m); err != nil {
		return nil, "", newRefusedError(fmt.Errorf("%s: cannot decode its data: %w", describe(e), err))
	}
	n := messagePayload{Event: e, NotificationData: m, o: o, now: now}
	n.Text = payload.CleanText(n.Text, messageText)
	var doc any
	switch f {
	case PagerDuty:
		doc = n.toPagerDuty()
	case Alertmanager:
		doc = []alert{n.toAlert()}
	case Slack:
		doc = n.toSlack()
	case Teams:
		doc = n.toTeams()
		for len(encodeJSON(doc)) > teamsBody && n.shorten() {
			doc = n.toTeams()
		}
	default:
		return nil, "", tasker.Errorf(tasker.Internal, "unknown webhook format %q", f)
	}
	return encodeJSON(doc), "application/json", nil
}

func encodeJSON(doc any) []byte {
	body, err := encodeReadable(doc)
	if err != nil {
		panic(err) // impossible for strings and numbers
	}
	return body
}

// encodeReadable encodes a value as JSON without HTML escapes.
func encodeReadable(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// truncate truncates a text to limit characters.
func truncate(text string, limit int) string {
	if utf8.RuneCountInString(text) <= limit {
		return text
	}
	return string([]rune(text)[:max(limit-1, 0)]) + "…"
}

// shorten halves the long parts of a notification. It returns false if nothing is left to shorten.
func (n *messagePayload) shorten() bool {
	before := len(n.Text) + len(n.Summary) + len(n.Members) + len(n.Owners)
	n.Members, n.Owners = n.Members[:len(n.Members)/2], n.Owners[:len(n.Owners)/2]
	if n.Text = truncate(n.Text, utf8.RuneCountInString(n.Text)/2); n.Text == "…" {
		n.Text = ""
	}
	n.Summary = truncate(n.Summary, max(100, utf8.RuneCountInString(n.Summary)/2))
	return len(n.Text)+len(n.Summary)+len(n.Members)+len(n.Owners) < before
}

// messagePayload contains the data from which a notification is encoded in any format.
type messagePayload struct {
	tasker.Event
	tasker.NotificationData

	o   WebhookOptions
	now time.Time
}

func (n messagePayload) installation() string { return cmp.Or(n.o.Source, defaultSource) }

// buildLink returns the URL of the page that the notification is about, or "" if there is no page
// or no public URL.
func (n messagePayload) buildLink() string {
	if n.o.PublicURL == "" || n.Path == "" {
		return ""
	}
	return strings.TrimSuffix(n.o.PublicURL, "/") + n.Path
}

// isResolved reports whether the notification is the last one about its subject, such as a resolved
// case.
func (n messagePayload) isResolved() bool {
	return n.Topic == tasker.CaseResolvedTopic || n.Topic == tasker.OperationDoneTopic ||
		strings.HasSuffix(n.Topic, ".ended") || strings.HasSuffix(n.Topic, ".closed")
}

// formatPlace returns the namespace and the template, separated by a slash.
func (n messagePayload) formatPlace() string {
	return strings.Trim(n.Namespace+"/"+n.Template, "/")
}

type (
	pagerDutyEvent struct {
		RoutingKey  string            `json:"routing_key"`
		EventAction string            `json:"event_action"`
		DedupKey    string            `json:"dedup_key"`
		Payload     *pagerDutyPayload `json:"payload,omitempty"`
		Links       []pagerDutyLink   `json:"links,omitempty"`
		Client      string            `json:"client,omitempty"`
	}
	pagerDutyPayload struct {
		Summary       string         `json:"summary"`
		Source        string         `json:"source"`
		Severity      string         `json:"severity"`
		Timestamp     string         `json:"timestamp"`
		Component     string         `json:"component,omitempty"`
		Group         string         `json:"group,omitempty"`
		Class         string         `json:"class,omitempty"`
		CustomDetails map[string]any `json:"custom_details"`
	}
	pagerDutyLink struct {
		Href string `json:"href"`
		Text string `json:"text"`
	}
)

var pagerDutySeverities = map[tasker.Severity]string{
	tasker.Critical: "critical", tasker.High: "error", tasker.Medium: "warning", tasker.Low: "info",
}

func (n messagePayload) toPagerDuty() pagerDutyEvent {
	out := pagerDutyEvent{RoutingKey: n.o.Key, EventAction: "trigger", DedupKey: computeDedupKey(n.Event, n.o.Source)}
	switch {
	case n.isResolved():
		out.EventAction = "resolve"
		return out
	case n.Topic == tasker.CaseOwnedTopic || n.Topic == tasker.OperationStartedTopic ||
		n.Topic == tasker.CaseChangedTopic && n.UnownedSince == nil:
		out.EventAction = "acknowledge"
		return out
	}
	out.Client = "Tasker"
	out.Payload = &pagerDutyPayload{
		Summary: truncate(n.Summary, pagerDutySummary), Source: n.installation(), Severity: cmp.Or(pagerDutySeverities[n.Severity], "info"),
		Timestamp: n.At.UTC().Format(time.RFC3339),
		Component: n.formatPlace(), Group: n.Namespace, Class: string(n.Reason),
		CustomDetails: map[string]any{
			"topic": n.Topic, "text": n.Text, "open": n.Entries, "waiting": n.Waiting, "failed_again": n.FailedAgain,
			"cases": n.Cases, "owners": strings.Join(n.Owners, ", "),
			"began_at": n.BeganAt.UTC().Format(time.RFC3339),
		},
	}
	if link := n.buildLink(); link != "" {
		out.Links = []pagerDutyLink{{Href: link, Text: "Tasker"}}
	}
	return out
}

// alert is an alert for Alertmanager. Its labels identify it, so they must not change.
type alert struct {
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     string            `json:"startsAt"`
	EndsAt       string            `json:"endsAt"`
	GeneratorURL string            `json:"generatorURL,omitempty"`
}

func (n messagePayload) toAlert() alert {
	kind := n.Subject.Kind
	name := "TaskerCase"
	if kind != tasker.IncidentSubject {
		name = "Tasker" + strings.ToUpper(kind[:1]) + kind[1:]
	}
	out := alert{
		Labels: map[string]string{
			"alertname": name, "installation": n.installation(), kind: n.Subject.ID.String(), "namespace": n.Namespace,
			"severity": string(n.alertSeverity()),
		},
		Annotations: map[string]string{
			"summary": n.Summary, "text": n.Text, "open": fmt.Sprint(n.Entries), "cases": fmt.Sprint(n.Cases),
			"owners":    strings.Join(n.Owners, ", "),
			"dedup_key": computeDedupKey(n.Event, n.o.Source),
		},
		StartsAt: n.BeganAt.UTC().Format(time.RFC3339), EndsAt: n.now.Add(alertLife).UTC().Format(time.RFC3339),
		GeneratorURL: n.buildLink(),
	}
	if n.isResolved() {
		out.EndsAt = n.At.UTC().Format(time.RFC3339)
	}
	return out
}

// alertSeverity returns the severity label. Labels identify an alert, so the severity must be the
// same in all notifications about one subject.
func (n messagePayload) alertSeverity() tasker.Severity {
	switch head, _, _ := strings.Cut(n.Topic, "."); head {
	case "breaker", "operation":
		return tasker.High
	case "hold":
		return tasker.Medium
	default:
		return n.Severity
	}
}

type (
	slackMessage struct {
		Text   string       `json:"text"`
		Blocks []slackBlock `json:"blocks"`
	}
	slackBlock struct {
		Type     string        `json:"type"`
		Text     *slackPart    `json:"text,omitempty"`
		Elements []slackButton `json:"elements,omitempty"`
	}
	slackPart struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	slackButton struct {
		Type string `json:"type"`
		Text any    `json:"text"`
		URL  string `json:"url,omitempty"`
	}
)

// slackEscape escapes the control characters of Slack.
var slackEscape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

func (n messagePayload) toSlack() slackMessage {
	summary := truncate(n.Summary, slackText/5)
	part := func(text string) slackBlock {
		return slackBlock{Type: "section", Text: &slackPart{Type: "mrkdwn", Text: text}}
	}
	out := slackMessage{
		Text: slackEscape.Replace(summary), Blocks: []slackBlock{part("*" + slackEscape.Replace(summary) + "*")},
	}
	if text := truncate(n.Text, slackText/5); text != "" {
		out.Blocks = append(out.Blocks, part("```"+slackEscape.Replace(strings.ReplaceAll(text, "`", "'"))+"```"))
	}
	out.Blocks = append(out.Blocks, slackBlock{
		Type: "context", Elements: []slackButton{{Type: "plain_text", Text: truncate(n.formatFacts(), slackText)}},
	})
	if link := n.buildLink(); link != "" {
		button := slackButton{Type: "button", Text: slackPart{Type: "plain_text", Text: "Open in Tasker"}, URL: link}
		out.Blocks = append(out.Blocks, slackBlock{Type: "actions", Elements: []slackButton{button}})
	}
	return out
}

// formatFacts returns the remaining fields of a notification in one line.
func (n messagePayload) formatFacts() string {
	list := []string{
		n.Topic, "severity " + string(n.Severity), fmt.Sprintf("%d open, %d failed again", n.Entries, n.FailedAgain),
		fmt.Sprintf("cases %d", n.Cases),
	}
	if len(n.Owners) > 0 {
		list = append(list, "owner "+strings.Join(n.Owners, ", "))
	}
	return strings.Join(append(list, n.installation()), " · ")
}

type (
	teamsMessage struct {
		Type        string            `json:"type"`
		Attachments []teamsAttachment `json:"attachments"`
	}
	teamsAttachment struct {
		ContentType string    `json:"contentType"`
		Content     teamsCard `json:"content"`
	}
	teamsCard struct {
		Schema  string      `json:"$schema"`
		Type    string      `json:"type"`
		Version string      `json:"version"`
		Body    []teamsPart `json:"body"`
		Actions []teamsOpen `json:"actions,omitempty"`
	}
	teamsPart struct {
		Type     string      `json:"type"`
		Text     string      `json:"text,omitempty"`
		Weight   string      `json:"weight,omitempty"`
		FontType string      `json:"fontType,omitempty"`
		Wrap     bool        `json:"wrap,omitempty"`
		Facts    []teamsFact `json:"facts,omitempty"`
	}
	teamsFact struct {
		Title string `json:"title"`
		Value string `json:"value"`
	}
	teamsOpen struct {
		Type  string `json:"type"`
		Title string `json:"title"`
		URL   string `json:"url"`
	}
)

// teamsEscape escapes the markup characters of adaptive cards.
var teamsEscape = strings.NewReplacer(`\`, `\\`, "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "`", "\\`")

func (n messagePayload) toTeams() teamsMessage {
	card := teamsCard{
		Schema: "http://adaptivecards.io/schemas/adaptive-card.json", Type: "AdaptiveCard", Version: "1.4",
		Body: []teamsPart{{Type: "TextBlock", Text: teamsEscape.Replace(n.Summary), Weight: "Bolder", Wrap: true}},
	}
	if n.Text != "" {
		text := teamsPart{Type: "TextBlock", Text: teamsEscape.Replace(n.Text), FontType: "Monospace", Wrap: true}
		card.Body = append(card.Body, text)
	}
	facts := []teamsFact{
		{"Message", n.Topic}, {"Severity", string(n.Severity)}, {"Open", fmt.Sprint(n.Entries)},
		{"Failed again", fmt.Sprint(n.FailedAgain)}, {"Cases", fmt.Sprint(n.Cases)},
	}
	if len(n.Owners) > 0 {
		facts = append(facts, teamsFact{"Owner", strings.Join(n.Owners, ", ")})
	}
	for _, m := range n.Members {
		text := strings.Trim(m.Template+" > "+m.Step, "> ") + ": " + m.Text
		facts = append(facts, teamsFact{fmt.Sprint(m.Entries), teamsEscape.Replace(text)})
	}
	card.Body = append(card.Body, teamsPart{Type: "FactSet", Facts: append(facts, teamsFact{"Installation", n.installation()})})
	if link := n.buildLink(); link != "" {
		card.Actions = []teamsOpen{{Type: "Action.OpenUrl", Title: "Open in Tasker", URL: link}}
	}
	return teamsMessage{Type: "message", Attachments: []teamsAttachment{{
		ContentType: "application/vnd.microsoft.card.adaptive", Content: card,
	}}}
}
