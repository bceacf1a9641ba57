package ctl

import (
	"context"
	"reflect"
	"strings"

	"github.com/spf13/cobra"

	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/cli"
	"tasker.example/tasker/internal/endpoint"
)

// maker creates a command of a program.
type maker func(*program) *cobra.Command

// group returns the command of a noun, which contains the commands of its verbs.
func group(h help, below ...maker) maker {
	return func(p *program) *cobra.Command {
		c := cli.NewGroup(&cobra.Command{Use: h.use, Short: h.short, Long: h.long, Example: h.example})
		for _, create := range below {
			c.AddCommand(create(p))
		}
		return c
	}
}

// plain returns a command that sends one request and prints the answer, with asText unless the
// output is JSON. The arguments are the parameters of the path. The query and the body get a flag for
// each of their fields that declares one; complete checks and completes the body.
func plain[Q, B, A any](
	e endpoint.Of[Q, B, A], h help, asText func(*program, A), complete ...func(*program, *B, arguments) error,
) maker {
	return func(p *program) *cobra.Command {
		r := newRequest(e)
		r.prepare = func(_ context.Context, a arguments) error {
			for _, f := range complete {
				if err := f(p, &r.body, a); err != nil {
					return err
				}
			}
			return nil
		}
		return r.command(p, h, func(answer A) { asText(p, answer) })
	}
}

// list returns a command that prints a list as a table, like [printList]. The answer is a list, or it
// contains the list and optionally the cursor of the next page.
func list[Q, A, T any](e endpoint.Of[Q, endpoint.None, A], h help, empty, header string, row func(T) []any) maker {
	return plain(e, h, func(p *program, answer A) {
		items, ok := any(answer).([]T)
		v := reflect.ValueOf(answer)
		if ok {
			printList(p, items, empty, header, row)
			p.hintMorePages(len(items))
			return
		}
		for i := range v.NumField() {
			if items, ok = v.Field(i).Interface().([]T); ok {
				printList(p, items, empty, header, row)
			}
		}
		page := v.FieldByName("Pagination")
		if !page.IsValid() {
			return
		}
		if page, ok := page.Interface().(apiv1.Pagination); ok {
			p.printNextPage(page)
		}
		for _, flag := range []string{"before", "after"} {
			if next := page.FieldByName("Next" + strings.ToTitle(flag[:1]) + flag[1:]); next.IsValid() && !next.IsNil() {
				printNextPageFlag(p, flag, new(next.Elem().Interface()))
			}
		}
	})
}

// request is a request that a command sends. Its flags fill in the query and the body.
type request[Q, B, A any] struct {
	endpoint endpoint.Of[Q, B, A]
	query    Q
	body     B
	prepare  func(context.Context, arguments) error // checks and completes the request; optional
}

func newRequest[Q, B, A any](e endpoint.Of[Q, B, A]) *request[Q, B, A] {
	return &request[Q, B, A]{endpoint: e}
}

// command returns a command that sends the request and prints the answer.
func (r *request[Q, B, A]) command(p *program, h help, asText func(A)) *cobra.Command {
	c := newRequestCommand(p, h, r.send, asText)
	p.addQueryFlags(c, &r.query, h.limit, h.without...)
	p.addBodyFlags(c, &r.body)
	return c
}

func (r *request[Q, B, A]) send(ctx context.Context, api *client.Client, a arguments) (answer A, err error) {
	if r.prepare != nil {
		if err := r.prepare(ctx, a); err != nil {
			return answer, err
		}
	}
	path := make([]any, strings.Count(r.endpoint.Path, "{"))
	for i := range path {
		path[i] = a.parameter(i)
	}
	return client.Call(ctx, api, r.endpoint, r.query, r.body, path...)
}
