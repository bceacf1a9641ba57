package web

import (
	"cmp"
	"net/http"
	"net/url"
)

// saying is what a command says who does it and why, before somebody has said so.
func (f taskForm) saying() (actor, reason string) {
	return cmp.Or(f.Actor, "your name"), cmp.Or(f.Reason, "why")
}

// cancelCommand is the cancelling that a form asks for.
func (f taskForm) cancelCommand(x *exchange) command {
	actor, reason := f.saying()
	q := url.Values{"reason": {reason}, "cancelled_by": {actor}}
	return command{
		CLI:  commandLine([]string{"tasker-ctl", "--server", x.origin(), "task", "cancel", f.Task.UUID.String(), "--reason", reason, "--cancelled-by", actor}),
		Curl: commandLine([]string{"curl", "--fail-with-body", "-X", http.MethodDelete, x.origin() + apiOfTask(f.Task) + "?" + q.Encode()}),
	}
}

// investigateCommand is the opening of an investigation that a form asks for.
func (f taskForm) investigateCommand(x *exchange) command {
	actor, reason := f.saying()
	return commandOf(x, []string{"dlq", "create", f.Task.UUID.String(), "--reason", reason, "--created-by", actor},
		http.MethodPost, "/v1/dlq/task/"+f.Task.UUID.String(), map[string]string{"reason": reason, "created_by": actor})
}
