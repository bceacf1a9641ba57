package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// GrowthOptions say how far each measure grows. The zero value is what the
// documents report.
type GrowthOptions struct {
	Steps      []int // of one task, growing; 10, 100 and 1 000 when empty
	TotalSteps int   // of all tasks of one shape together; 2 000 when 0
	Payloads   []int // bytes of a result, growing; 1 KB, 10 KB, 100 KB and 1 MB when empty
	Backlog    []int // enqueued steps, growing; 10 000 and 1 000 000 when empty
	Waiting    []int // workers that wait for work, growing; 1 and 1 000 when empty
	Namespaces int   // with as many handlers each; 100 when 0
	Servers    []int // on the database, growing; 1, 2, 4 and 8 when empty

	Hold time.Duration // how long a transaction is held open; 10 minutes when 0
}

// DefaultHold is how long a transaction is held open.
const DefaultHold = 10 * time.Minute

func (o *GrowthOptions) fill() {
	for _, v := range []struct {
		option *[]int
		value  []int
	}{
		{&o.Steps, []int{10, 100, 1_000}},
		{&o.Payloads, []int{1_000, 10_000, 100_000, 1_000_000}},
		{&o.Backlog, []int{10_000, 1_000_000}},
		{&o.Waiting, []int{1, 1_000}},
		{&o.Servers, []int{1, 2, 4, 8}},
	} {
		if len(*v.option) == 0 {
			*v.option = v.value
		}
	}
	o.TotalSteps = cmp.Or(o.TotalSteps, 2_000)
	o.Namespaces = cmp.Or(o.Namespaces, 100)
	o.Hold = cmp.Or(o.Hold, DefaultHold)
}

// growthGroups measure what a step costs as a task, a payload, the backlog, the
// fleet or the number of queues grows. Every figure is compared with the same one
// at the smallest size, so a ratio of 1 says that it does not grow.
var growthGroups = []group{
	{"tasks", (*bench).growingTasks},
	{"payloads", (*bench).growingPayloads},
	{"backlog", (*bench).growingBacklog},
	{"waiting workers", (*bench).growingFleet},
	{"namespaces and handlers", (*bench).growingQueues},
	{"servers", (*bench).growingServers},
	{"open transaction", (*bench).openTransaction},
}

// Growth measures how costs grow.
func Growth(ctx context.Context, o Options, g GrowthOptions) (Report, error) {
	g.fill()
	o.growth = g
	return measure(ctx, o, growthGroups)
}

// perStep notes a cost as that of one step, compared with the one at the
// smallest size.
func (b *bench) perStep(what string, size, smallest, steps int, took time.Duration) {
	name := func(n int) string { return fmt.Sprintf("%s, %d steps", what, n) }
	b.note(figure{name: name(size), unit: "µs/step", baseline: grown(name, size, smallest)}, float64(took.Microseconds())/float64(max(steps, 1)))
}

// grown names the baseline of a figure: the same at the smallest size.
func grown(name func(int) string, size, smallest int) string {
	if size == smallest {
		return ""
	}
	return name(smallest)
}

var errNothingClaimed = errors.New("no step was claimed although steps are enqueued")
