package bench

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"time"

	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/api"
)

// overHTTP runs f while a server of the engine listens on loopback, with workers
// and requests that speak to it.
func (b *bench) overHTTP(ctx context.Context, f func(path) error) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	stopping, stop := context.WithCancel(ctx)
	server := &http.Server{
		Handler:           api.New(stopping, api.Options{DB: b.db, Engine: b.engine, DLQ: b.dlq, Log: b.log}),
		ReadHeaderTimeout: time.Minute,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	if c, cerr := client.New("http://" + listener.Addr().String()); cerr != nil {
		err = cerr
	} else {
		err = f(path{name: "over HTTP", engine: c.Backend(), create: createOver(c)})
	}
	stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	err = errors.Join(err, server.Shutdown(ctx))
	if serr := <-served; !errors.Is(serr, http.ErrServerClosed) {
		err = errors.Join(err, serr)
	}
	return err
}

// createOver creates tasks through the API.
func createOver(c *client.Client) func(ctx context.Context, s shape, n int) error {
	return func(ctx context.Context, s shape, n int) error {
		request := apiv1.CreateTask{Namespace: space, Name: s.name}
		if n == 1 {
			_, err := c.CreateTask(ctx, request)
			return err
		}
		for n > 0 {
			some := min(n, bulk)
			n -= some
			if _, err := c.CreateTasks(ctx, slices.Repeat([]apiv1.CreateTask{request}, some)); err != nil {
				return err
			}
		}
		return nil
	}
}
