package demo

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/client"
)

// A Board prints a line for each order that finishes, needs an operator, or continues after a
// repair.
type Board struct {
	out    io.Writer
	client *client.Client

	mu   sync.Mutex
	open []order
}

// order is an unfinished order.
type order struct {
	task     tasker.ID
	number   int
	lastLine string
}

const (
	boardEvery  = 500 * time.Millisecond // polling interval
	boardLength = 50                     // maximum number of orders
)

// NewBoard returns a board that polls the server and writes to out.
func NewBoard(c *client.Client, out io.Writer) *Board { return &Board{out: out, client: c} }

// Add adds an order to the board. A full board drops the oldest one.
func (b *Board) Add(number int, task tasker.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open = append(b.open, order{task: task, number: number})
	b.open = b.open[max(0, len(b.open)-boardLength):]
}

// Run polls the orders and prints changes until ctx ends.
func (b *Board) Run(ctx context.Context) error {
	ticker := time.NewTicker(boardEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		for _, o := range b.listOrders() {
			t, err := b.client.Task(ctx, o.task)
			if err != nil {
				continue // retry at the next tick
			}
			b.print(o, t)
		}
	}
}

func (b *Board) listOrders() []order {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]order(nil), b.open...)
}

func (b *Board) print(o order, t tasker.Task) {
	var line string
	switch {
	case t.State == tasker.TaskComplete:
		line = fmt.Sprintf("order %d is complete", o.number)
	case t.State == tasker.TaskCancelled:
		line = fmt.Sprintf("order %d was cancelled", o.number)
	case t.State == tasker.TaskError && t.EntryUUID != nil:
		line = fmt.Sprintf("order %d needs a human: tasker-ctl dlq get %s (task %s)", o.number, *t.EntryUUID, t.UUID)
	case o.lastLine != "":
		line = fmt.Sprintf("order %d continues: %s", o.number, t.State)
	}
	if line == o.lastLine || line == "" {
		return
	}
	_, _ = fmt.Fprintf(b.out, "%s  %s\n", time.Now().Format(time.TimeOnly), line)
	b.updateOrder(o, line, t.CompletedAt != nil || t.State == tasker.TaskCancelled)
}

// updateOrder stores the last line of an order, or removes an ended order.
func (b *Board) updateOrder(o order, line string, ended bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.open, func(open order) bool { return open.task == o.task })
	switch {
	case i < 0:
	case ended:
		b.open = slices.Delete(b.open, i, i+1)
	default:
		b.open[i].lastLine = line
	}
}
