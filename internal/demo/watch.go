package demo

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
)

// A Board shows one line for each order that finishes, needs a human or continues after that.
type Board struct {
	out    io.Writer
	client *client.Client

	mu   sync.Mutex
	open []order
}

// An order is one that is not finished, with what was last said of it.
type order struct {
	task   tasker.ID
	number int
	said   string
}

// boardEvery is the rest between two looks; boardLength bounds what is looked at.
const (
	boardEvery  = 500 * time.Millisecond
	boardLength = 50
)

// NewBoard returns a board that asks the server and writes to out.
func NewBoard(c *client.Client, out io.Writer) *Board { return &Board{out: out, client: c} }

// Add puts an order on the board; the oldest one goes when it is full.
func (b *Board) Add(number int, task tasker.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open = append(b.open, order{task: task, number: number})
	b.open = b.open[max(0, len(b.open)-boardLength):]
}

// Run writes until ctx ends.
func (b *Board) Run(ctx context.Context) error {
	ticker := time.NewTicker(boardEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		for _, o := range b.list() {
			t, err := b.client.Task(ctx, o.task)
			if err != nil {
				continue // it will answer the next time
			}
			b.say(o, t)
		}
	}
}

func (b *Board) list() []order {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]order(nil), b.open...)
}

func (b *Board) say(o order, t apiv1.Task) {
	var line string
	switch {
	case t.Status == string(tasker.TaskComplete):
		line = fmt.Sprintf("order %d is complete", o.number)
	case t.Status == string(tasker.TaskCancelled):
		line = fmt.Sprintf("order %d was cancelled", o.number)
	case t.Status == string(tasker.TaskError) && t.DLQEntryUUID != nil:
		line = fmt.Sprintf("order %d needs a human: tasker-ctl dlq get %s (task %s)", o.number, *t.DLQEntryUUID, t.TaskUUID)
	case o.said != "":
		line = fmt.Sprintf("order %d goes on: %s", o.number, t.Status)
	}
	if line == o.said || line == "" {
		return
	}
	_, _ = fmt.Fprintf(b.out, "%s  %s\n", time.Now().Format(time.TimeOnly), line) // a terminal that is gone ends us otherwise
	b.remember(o, line, t.CompletedAt != nil || t.Status == string(tasker.TaskCancelled))
}

// remember notes what was said of an order, or takes it off the board.
func (b *Board) remember(o order, line string, ended bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.open {
		if b.open[i].task != o.task {
			continue
		}
		b.open[i].said = line
		if ended {
			b.open = append(b.open[:i], b.open[i+1:]...)
		}
		return
	}
}
