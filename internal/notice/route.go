package notice

import (
	"fmt"
	"slices"
	"strings"

	"tasker.example/tasker"
)

// A Route sends matching notifications to sinks. Empty fields match everything.
type Route struct {
	Namespace string
	Template  string
	Severity  tasker.Severity // minimum severity
	Reason    tasker.Reason
	Cause     string // substring of the error type or text
	Topic     string // such as case.opened, or case.* as a prefix
	Sinks     []string
}

// Routes is an ordered list of routes.
type Routes struct {
	List    []Route
	Takes   map[string][]string // accepted topics by sink; a sink that has none accepts all
	Default []string            // sinks of notifications that no route matches
}

// routeFields lists the conditions of a route.
var routeFields = []string{"namespace", "template", "severity", "reason", "cause", "topic"}

// ParseRoutes parses routes separated by newlines or semicolons, such as "namespace=orders
// severity=high -> pager, chat". A route without conditions matches everything.
func ParseRoutes(text string) (list []Route, err error) {
	for line := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == ';' }) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		r, err := parseRoute(line)
		if err != nil {
			return nil, fmt.Errorf("route %d (%.100q): %w", len(list)+1, line, err)
		}
		list = append(list, r)
	}
	return list, nil
}

func parseRoute(line string) (r Route, err error) {
	conditions, sinks, found := strings.Cut(line, "->")
	if !found {
		return r, fmt.Errorf("must have -> before its sinks, as in \"namespace=orders -> pager\"")
	}
	for name := range strings.SplitSeq(sinks, ",") {
		if name = strings.TrimSpace(name); name == "" {
			return r, fmt.Errorf("must have one or more sinks after ->, separated by commas")
		}
		r.Sinks = append(r.Sinks, name)
	}
	for condition := range strings.FieldsSeq(conditions) {
		field, value, _ := strings.Cut(condition, "=")
		to := map[string]*string{
			"namespace": &r.Namespace, "template": &r.Template, "severity": (*string)(&r.Severity),
			"reason": (*string)(&r.Reason), "cause": &r.Cause, "topic": &r.Topic,
		}[field]
		switch {
		case to == nil:
			return r, fmt.Errorf("unknown condition %q: must be one of %s", field, strings.Join(routeFields, ", "))
		case value == "":
			return r, fmt.Errorf("condition %s has no value: use %s=value", field, field)
		case *to != "":
			return r, fmt.Errorf("has condition %s twice", field)
		}
		*to = value
	}
	switch {
	case r.Severity != "" && !slices.Contains(severities, r.Severity):
		return r, fmt.Errorf("severity must be critical, high, medium or low, not %q", r.Severity)
	case r.Reason != "" && !slices.Contains(tasker.Reasons(), r.Reason):
		return r, fmt.Errorf("unknown reason %q", r.Reason)
	}
	return r, nil
}

// TopicMatches reports whether a topic matches a pattern, which may end with *.
func TopicMatches(pattern, topic string) bool {
	if head, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(topic, head)
	}
	return pattern == topic
}

func (r Route) matches(topic string, m tasker.NotificationData) bool {
	return (r.Namespace == "" || r.Namespace == m.Namespace) && (r.Template == "" || r.Template == m.Template) &&
		(r.Severity == "" || maxSeverity(r.Severity, m.Severity) == m.Severity) && (r.Reason == "" || r.Reason == m.Reason) &&
		(r.Cause == "" || strings.Contains(m.ErrorType+"\n"+m.Text, r.Cause)) && (r.Topic == "" || TopicMatches(r.Topic, topic))
}

// Match returns the numbers of all matching routes, from 1.
func (r Routes) Match(topic string, m tasker.NotificationData) (numbers []int) {
	for i, route := range r.List {
		if route.matches(topic, m) {
			numbers = append(numbers, i+1)
		}
	}
	return numbers
}

// Choose returns the sinks that receive a notification. It returns the sinks of the first
// matching route, of further routes as it escalates, and those in notified, which received earlier
// notifications about the subject. Below the highest level, an escalation is sent only to sinks
// that are not in notified.
func (r Routes) Choose(topic string, escalation int, m tasker.NotificationData, notified []string) []string {
	var sinks []string
	add := func(name string) {
		if !slices.Contains(sinks, name) {
			sinks = append(sinks, name)
		}
	}
	numbers := r.Match(topic, m)
	numbers = numbers[:min(len(numbers), []int{1, 2, len(numbers)}[min(escalation, 2)])]
	for _, n := range numbers {
		for _, name := range r.List[n-1].Sinks {
			if r.accepts(name, topic) {
				add(name)
			}
		}
	}
	switch {
	case topic == tasker.CaseUnownedTopic && escalation < 2:
		return slices.DeleteFunc(sinks, func(name string) bool { return slices.Contains(notified, name) })
	case topic == tasker.DigestTopic || topic == tasker.TestTopic:
	default:
		for _, name := range notified {
			add(name)
		}
	}
	if len(sinks) == 0 {
		return r.Default
	}
	return sinks
}

func (r Routes) accepts(sink, topic string) bool {
	patterns := r.Takes[sink]
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool { return TopicMatches(p, topic) })
}
