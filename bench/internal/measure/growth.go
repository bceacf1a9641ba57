package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// GrowthOptions configures the ranges of the growth measurements. All fields are optional; the
// documents report the defaults.
type GrowthOptions struct {
	Steps      []int // per task, ascending; default 10, 100 and 1 000
	TotalSteps int   // of all tasks of one shape; default 2 000
	Payloads   []int // bytes of a result, ascending; default 1 KB, 10 KB, 100 KB and 1 MB
	Backlog    []int // enqueued steps, ascending; default 10 000 and 1 000 000
	Waiting    []int // workers that wait for work, ascending; default 1 and 1 000
	Namespaces int   // each with as many handlers; default 100
	Servers    []int // on the database, ascending; default 1, 2, 4 and 8

	Hold time.Duration // of an open transaction; default 10 minutes
}

// DefaultHold is the default of [GrowthOptions.Hold].
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

// growthGroups measure the cost of a step while the task, a payload, the backlog, the fleet or the
// number of queues grows. Every figure is compared with that of the smallest size, so a ratio of 1
// means no growth.
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

// perStep records a cost per step, compared with that of the smallest size.
func (b *bench) perStep(what string, size, smallest, steps int, took time.Duration) {
	name := func(n int) string { return fmt.Sprintf("%s, %d steps", what, n) }
	b.note(figure{name: name(size), unit: "µs/step", baseline: grown(name, size, smallest)}, float64(took.Microseconds())/float64(max(steps, 1)))
}

// grown returns the name of the baseline: the same figure at the smallest size.
func grown(name func(int) string, size, smallest int) string {
	if size == smallest {
		return ""
	}
	return name(smallest)
}

var errNothingClaimed = errors.New("no step was claimed although steps are enqueued")
