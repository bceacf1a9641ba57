package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/auth"
	"tasker.example/tasker/internal/feed"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/query"
)

// followTask streams the transitions of a task until it ends, the client disconnects or the server
// stops.
func (s *server) followTask(x *request) error {
	var q apiv1.TaskEventQuery
	if err := query.Decode(x.query, &q); err != nil {
		return err
	}
	task, err := s.db.Task(x.ctx, x.pathUUID("uuid"))
	if err != nil {
		return err
	}
	after, err := s.readTaskCursor(x, task.UUID, q)
	if err != nil {
		return err
	}
	if s.stopping.Err() != nil {
		return tasker.Errorf(tasker.Unavailable, "the server is shutting down: try again")
	}
	follower, err := s.feedOptions.Feed.Follow(x.ctx, task.UUID, after, auth.RemoteAddress(x.r))
	if err != nil {
		return err
	}
	defer follower.Close()
	e := &taskStream{request: x, task: task.UUID, follower: follower}
	first, err := e.encode("state", after, apiv1.TaskEvent{Kind: "state", TaskUUID: task.UUID, Status: task.State})
	if err != nil {
		return err
	}
	st := &feed.Stream{Next: e.next, Idle: func() string { return ": still here\n\n" }}
	s.runStream(x, st, first[:len(first)-1]) // Run ends the block
	return nil
}

// readTaskCursor returns the position at which the stream of a task starts.
func (s *server) readTaskCursor(x *request, task tasker.ID, q apiv1.TaskEventQuery) (postgres.TaskPosition, error) {
	id := cmp.Or(x.r.Header.Get("Last-Event-ID"), q.LastEventID)
	switch {
	case id != "":
		return feed.ParseTaskCursor(id)
	case q.From == apiv1.FeedNow:
		return s.db.TaskPosition(x.ctx, task)
	default:
		return postgres.TaskPosition{}, nil
	}
}

// taskStream encodes the transitions of a task for one client.
type taskStream struct {
	request  *request
	task     tasker.ID
	follower *feed.Follower
}

// next returns the text of the next page. After the end of the task, the error is io.EOF.
func (e *taskStream) next(ctx context.Context, wait time.Duration) (text string, some bool, err error) {
	p, err := e.follower.Next(ctx, wait)
	if err != nil || p == nil {
		return "", false, err
	}
	access.RedactTransitions(e.request.ctx, p.Transitions)
	var b bytes.Buffer
	for i, t := range p.Transitions {
		position := p.Before // resuming within the page repeats it
		if i == len(p.Transitions)-1 {
			position = p.After
		}
		event := apiv1.TaskEvent{Kind: "transition", TaskUUID: e.task, Transition: &t}
		line, err := e.encode("transition", position, event)
		if err != nil {
			return "", false, err
		}
		b.WriteString(line)
	}
	if !p.Ended {
		return b.String(), true, nil
	}
	event := apiv1.TaskEvent{Kind: "end", TaskUUID: e.task, Status: p.State.State, PermanentlyFailed: p.State.PermanentlyFailed}
	line, err := e.encode("end", p.After, event)
	if err != nil {
		return "", false, err
	}
	b.WriteString(line)
	return b.String(), true, io.EOF
}

func (e *taskStream) encode(kind string, position postgres.TaskPosition, event apiv1.TaskEvent) (string, error) {
	doc, err := json.Marshal(event)
	if err != nil {
		return "", fmt.Errorf("encode an event of a task: %w", err)
	}
	return fmt.Sprintf("id: %s\nevent: %s\ndata: %s\n\n", feed.FormatTaskCursor(position), kind, doc), nil
}
