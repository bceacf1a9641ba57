package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"strings"
	"time"

	"tasker.example/tasker"
)

// functions are what templates can say. None of them returns HTML but [moment],
// which is built from times only.
var functions = template.FuncMap{
	"ago": ago, "lasted": length, "moment": moment, "momentOf": momentOf, "minutes": minutes, "minutesOf": func(m *float64) string { return minutes(*m) }, "pretty": pretty, "words": words, "short": short,
	"stateKind": stateKind, "severityKind": severityKind, "cause": tasker.CauseOf, "count": count, "text": text, "clip": clip, "dict": dict, "span": span,
}

// moment is an instant as a page shows it: how long ago, with the time in UTC
// beside it for who points at it, both of which the script brings into the reader's
// zone and up to date.
func moment(at time.Time) template.HTML {
	if at.IsZero() {
		return "–"
	}
	utc := at.UTC().Format(time.RFC3339)
	return template.HTML(`<time datetime="` + utc + `" title="` + at.UTC().Format("2006-01-02 15:04:05 UTC") + `">` +
		template.HTMLEscapeString(ago(at)) + `</time>`)
}

func momentOf(at *time.Time) template.HTML {
	if at == nil {
		return "–"
	}
	return moment(*at)
}

// ago says how long ago an instant was, or how far ahead it is.
func ago(at time.Time) string {
	d := time.Since(at)
	if d < 0 {
		return "in " + length(-d)
	}
	return length(d) + " ago"
}

// minutes spells a number of minutes as a length.
func minutes(m float64) string { return length(time.Duration(m * float64(time.Minute))) }

// length is how long, in the two units that matter.
func length(d time.Duration) string {
	switch d = d.Round(time.Second); {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 24*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%d d %d h", int(d.Hours())/24, int(d.Hours())%24)
	}
}

// pretty indents a JSON document; what is none is shown as it is. Numbers are not
// read, so they stay as somebody wrote them.
func pretty(doc json.RawMessage) string {
	if len(doc) == 0 {
		return ""
	}
	var b bytes.Buffer
	if json.Indent(&b, doc, "", "  ") != nil {
		return string(doc)
	}
	return b.String()
}

// words spells a name of a state or a reason for people.
func words(name any) string { return strings.ReplaceAll(fmt.Sprint(name), "_", " ") }

// short is the end of an id, by which people tell ids apart: ids of one time begin
// alike.
func short(id any) string {
	s := text(id)
	if len(s) == 36 {
		return s[24:]
	}
	return s
}

// text spells a value, and nothing for nil.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case *string:
		if v == nil {
			return ""
		}
		return *v
	case *tasker.ID:
		if v == nil {
			return ""
		}
		return v.String()
	case json.RawMessage:
		return string(v)
	default:
		return fmt.Sprint(v)
	}
}

// count spells a number with its noun, and separates thousands.
func count(n any, noun string) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	if noun == "" {
		return digits
	}
	if digits == "1" {
		return digits + " " + noun
	}
	if stem, ok := strings.CutSuffix(noun, "y"); ok {
		return digits + " " + stem + "ies"
	}
	return digits + " " + noun + "s"
}

// stateKind is the look of a state of a task or a step: good, busy, idle, bad, off.
func stateKind(state any) string {
	switch fmt.Sprint(state) {
	case "complete", "resolved_manually", "manually_resolved", "published", "active", "up", "healthy":
		return "good"
	case "in_progress", "enqueued", "steps_in_process", "initializing", "enqueuing_steps", "evaluating_results", "enqueued_for_orchestration":
		return "busy"
	case "error", "blocked_by_failures", "permanently_failed", "set_aside", "stale", "gone", "failing", "down":
		return "bad"
	case "cancelled", "off":
		return "off"
	case "waiting_for_retry", "warning", "draining", "degraded":
		return "warn"
	default:
		return "idle"
	}
}

// severityKind is the look of a severity.
func severityKind(s tasker.Severity) string {
	switch s {
	case tasker.Critical, tasker.High:
		return "bad"
	case tasker.Medium:
		return "warn"
	default:
		return "idle"
	}
}

// dict makes the named arguments of a shared piece.
func dict(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, fmt.Errorf("dict: %d arguments are no pairs", len(pairs))
	}
	m := make(map[string]any, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("dict: %v is no name", pairs[i])
		}
		m[name] = pairs[i+1]
	}
	return m, nil
}
