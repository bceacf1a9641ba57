package ctl

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/endpoint"
)

func (p *program) newExplainCommand() *cobra.Command {
	c := plain(endpoint.Explain, help{
		use: "explain ID", short: "Explain why something is not progressing",
		long: `Explain why a task, step, investigation, case, operation or hold is not progressing: the
condition, since when, what would unblock it, and who has to act next.`,
		example: `  tasker-ctl explain $TASK
  tasker-ctl explain $STEP
  tasker-ctl explain queue orders charge`,
	}, (*program).printExplanation)(p)
	c.AddCommand(plain(endpoint.ExplainQueue, help{
		use: "queue NAMESPACE HANDLER", short: "Explain why a queue is waiting",
		example: `  tasker-ctl explain queue orders charge`,
	}, (*program).printExplanation)(p))
	return c
}

func (p *program) printExplanation(e apiv1.Explanation) {
	fmt.Fprintln(p.out, clean(e.Sentence))
	fields := []field{{"Fact", e.Fact}, {"Since", e.Since}, {"Turn", e.Turn}, {"Unblocks", orDash(e.Unblocks)}}
	what := strings.TrimSpace(e.Kind + " " + e.ID)
	fields = append(fields, field{"Explained", what + ", " + strings.Join(e.Namespaces, ", ") + " " + e.Name})
	for _, f := range e.Facts {
		fields = append(fields, field{strings.ToUpper(f.Name[:1]) + f.Name[1:], f.Value})
	}
	p.printFields("", fields...)
	if len(e.Steps) > 1 {
		printList(p, e.Steps, "", "step, state, fact, turn, since, why?", func(s tasker.ExplainedStep) []any {
			return []any{s.Name, s.State, s.Reason, s.NextActor, s.Since, s.Message}
		})
	}
	if len(e.Counts) > 1 {
		printList(p, e.Counts, "", "fact, count, one of the tasks",
			func(c tasker.ReasonCount) []any {
				return []any{c.Reason, c.Count, c.Task}
			})
	}
	if e.More {
		fmt.Fprintf(p.err, "More results exist; %d were checked.\n", e.Looked)
	}
}
