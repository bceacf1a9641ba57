package ctl

import (
	"context"

	"github.com/spf13/cobra"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
)

func (p *program) newTaskRequestsCommand() *cobra.Command {
	var q tasker.TaskRequestFilter
	c := newRequestCommand(p, help{
		use:   "requests",
		short: "List tasks that were requested in SQL",
		long: `List tasks that were requested with the SQL function tasker.create_task and are not created:
for a moment because no server has created them yet, and longer because a server refused
them.`,
		example: "  tasker-ctl task requests --refused",
	}, func(ctx context.Context, api *client.Client, _ arguments) (apiv1.TaskRequestList, error) {
		return api.TaskRequests(ctx, q)
	}, func(l apiv1.TaskRequestList) {
		printList(p, l.Requests, "No requests.", "task, template, requested, refused, error", func(r apiv1.TaskRequest) []any {
			text := "-"
			if r.ErrorCode != nil && r.ErrorMessage != nil {
				text = *r.ErrorCode + ": " + *r.ErrorMessage
			}
			return []any{r.TaskUUID, r.Namespace + "/" + r.Name, r.CreatedAt, orDash(r.RefusedAt), text}
		})
		p.printNextPage(l.Pagination)
	})
	p.addQueryFlags(c, &q, 50)
	return c
}

func (p *program) newDismissCommand() *cobra.Command {
	return newRequestCommand(p, help{
		use:     "dismiss TASK",
		short:   "Delete the request for a task",
		example: "  tasker-ctl task dismiss $TASK",
	}, func(ctx context.Context, api *client.Client, a arguments) (struct{}, error) {
		return struct{}{}, api.DismissTaskRequest(ctx, a.id[0])
	}, func(struct{}) { p.printDone("Request deleted.") })
}
