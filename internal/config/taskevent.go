package config

import (
	"fmt"
	"slices"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/notice"
)

// maxTaskSubscriptions limits the subscriptions to task events, each of which is compared with
// every event.
const maxTaskSubscriptions = 100

// TaskSubscriptions parses the key task_events. An error names the invalid part.
func (e Emission) TaskSubscriptions() (list []tasker.TaskSubscription, err error) {
	for line := range strings.FieldsFuncSeq(e.TaskEvents, func(r rune) bool { return r == '\n' || r == ';' }) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		s, err := parseTaskSubscription(line)
		if err != nil {
			return nil, fmt.Errorf("subscription %d (%.100q): %w", len(list)+1, line, err)
		}
		s.MaxBytes = e.TaskEventMaxBytes
		list = append(list, s)
	}
	if len(list) > maxTaskSubscriptions {
		return nil, fmt.Errorf("has %d subscriptions; the limit is %d", len(list), maxTaskSubscriptions)
	}
	return list, nil
}

func parseTaskSubscription(line string) (s tasker.TaskSubscription, err error) {
	seen := map[string]bool{}
	for word := range strings.FieldsSeq(line) {
		field, value, hasValue := strings.Cut(word, "=")
		if seen[field] {
			return s, fmt.Errorf("has %s twice", field)
		}
		seen[field] = true
		switch field {
		case "topic":
			s.Topics, err = taskTopics(value)
		case "namespace":
			s.Namespace = value
		case "template":
			s.Template = value
		case "include_result":
			s.IncludeResult = true
		case "include_context":
			s.IncludeContext = true
		default:
			err = fmt.Errorf("unknown condition %q: must be one of topic, namespace, template, include_result, include_context", field)
		}
		flag := field == "include_result" || field == "include_context"
		switch {
		case err != nil:
			return s, err
		case flag && hasValue:
			return s, fmt.Errorf("%s has no value: write only %s", field, field)
		case !flag && value == "":
			return s, fmt.Errorf("condition %s has no value: use %s=value", field, field)
		}
	}
	if s.Topics == nil {
		return s, fmt.Errorf("must have topic=, as in \"topic=task.completed,task.failed namespace=payments\"")
	}
	return s, nil
}

// taskTopics returns the topics of task events that a list of patterns matches.
func taskTopics(patterns string) (topics []string, err error) {
	for _, pattern := range splitList(patterns) {
		known := false
		for _, topic := range tasker.TaskTopics() {
			if !notice.TopicMatches(pattern, topic) {
				continue
			}
			if known = true; !slices.Contains(topics, topic) {
				topics = append(topics, topic)
			}
		}
		if !known {
			return nil, fmt.Errorf("unknown topic %q: must be one of %s", pattern, strings.Join(tasker.TaskTopics(), ", "))
		}
	}
	return topics, nil
}
