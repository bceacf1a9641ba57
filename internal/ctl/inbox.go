package ctl

import (
	"fmt"
	"strings"

	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/endpoint"
)

var inboxCommand = list(endpoint.ListInbox, help{
	use: "inbox", short: "List human steps, earliest due first", limit: 100,
	long: `List human steps, earliest due first.

An external step is listed while it waits, if its template names an assignee or a form, or if
it was assigned. --mine, --assignee and --unassigned can be combined.`,
	example: `  tasker-ctl inbox --mine
  tasker-ctl inbox --assignee group:finance --unassigned --namespace billing
  tasker-ctl inbox --template refund --due-before 2026-01-31T07:30:00Z`,
}, "No human steps.", "step, task, namespace, template, assignee, waits since, due", func(s apiv1.HumanStep) []any {
	return []any{s.Step, s.TaskUUID, s.Namespace, s.Template, orDash(s.Assignee), s.WaitingSince, orDash(s.DueAt)}
})

// humanStepCommands are the commands of group task for human steps.
var humanStepCommands = []maker{
	plain(endpoint.AssignStep, help{
		use: "assign-step TASK STEP --to NAME", short: "Assign a human step",
		long: `Assign an external step that waits to a person, by their sign-in name, or to group:NAME.
` + stepArgument,
		example: `  tasker-ctl task assign-step $TASK approve --to ann@example.com --reason "bob is away"
  tasker-ctl task assign-step $TASK approve --to group:finance
  tasker-ctl task assign-step $TASK approve --nobody`,
		switches: map[string]string{"nobody": "remove the assignee"},
	}, func(p *program, h apiv1.HumanStep) {
		p.printDone("Step assigned.")
		p.printFields("  ", field{"Step", h.Step}, field{"Assignee", orDefault(h.Assignee, "none")}, field{"Due", h.DueAt})
	}, func(p *program, a *apiv1.AssignStep, _ arguments) error {
		if (a.Assignee == "") != p.isSet("nobody") {
			return cli.Usagef("set either --to NAME or --nobody")
		}
		return nil
	}),
	plain(endpoint.GetAssignee, help{
		use: "assignee TASK STEP", short: "Show the assignee of a human step",
		long:    "Show the assignee, the form and the assignment history of a human step. " + stepArgument,
		example: `  tasker-ctl task assignee $TASK approve`,
	}, func(p *program, d apiv1.HumanStepDetail) {
		p.printFields("",
			field{"Step", d.Step}, field{"Assignee", orDefault(d.Assignee, "none")}, field{"Assigned by", d.AssignedBy},
			field{"Waits since", d.WaitingSince}, field{"Due", d.DueAt}, field{"Escalated", d.EscalatedAt}, field{"Form", d.Form})
		for _, c := range d.History {
			more := addPrefix(": ", orDefault(c.Assignee, "")) + addPrefix(": ", orDefault(c.Reason, ""))
			fmt.Fprintf(p.out, "\n%s %s by %s%s\n", formatTime(&c.At), clean(c.Event), clean(c.Actor), more)
		}
	}),
	plain(endpoint.CreateAnswerLink, help{
		use: "answer-link TASK STEP", short: "Create a one-time answer link",
		long: `Create a link with which the assignee answers an external step without signing in.

The link is valid for one answer, until it expires, while the step waits and its assignee does
not change. Anyone with the link can answer, so keep it secret. It is printed once, on standard
output. ` + stepArgument,
		example: `  tasker-ctl task answer-link $TASK approve
  tasker-ctl task answer-link $TASK approve --expires-in 4h | mail -s "Please answer" ann@example.com`,
	}, func(p *program, made apiv1.NewAnswerLink) {
		p.printHint("For %s, valid until %s. Anyone with this link can answer.", made.Assignee, formatTime(&made.ExpiresAt))
		fmt.Fprintln(p.out, clean(orDefault(made.URL, strings.TrimSuffix(p.client.URL(), "/")+made.Path)))
	}),
	plain(endpoint.ListAnswerLinks, help{
		use: "answer-links TASK STEP", short: "List answer links of a step",
		long:    "List the current and former answer links of an external step, newest first. " + stepArgument,
		example: `  tasker-ctl task answer-links $TASK approve`,
	}, func(p *program, l apiv1.AnswerLinks) {
		header := "link, assignee, state, made by, made, expires"
		printList(p, l.Links, "The step has no answer links.", header, func(l apiv1.AnswerLink) []any {
			return []any{l.UUID, l.Assignee, l.State, l.CreatedBy, l.CreatedAt, l.ExpiresAt}
		})
	}),
	plain(endpoint.RevokeAnswerLink, help{
		use: "revoke-answer-link TASK STEP LINK", short: "Revoke an answer link",
		long:    "Revoke an answer link. " + stepArgument,
		example: `  tasker-ctl task revoke-answer-link $TASK approve $LINK`,
	}, func(p *program, l apiv1.AnswerLink) {
		p.printDone("The link for %s is %s.", clean(l.Assignee), clean(l.State))
	}, func(_ *program, _ *endpoint.None, a arguments) error {
		if err := a.id[2].UnmarshalText([]byte(a.text[2])); err != nil {
			return cli.Usagef("LINK must be a UUID from answer-links, not %q", a.text[2])
		}
		return nil
	}),
}

// addPrefix returns text with a prefix, or "" if text is empty.
func addPrefix(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + clean(text)
}
