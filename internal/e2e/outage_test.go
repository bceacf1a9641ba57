package e2e

import (
	"net/http"
	"net/url"
	"strconv"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/devpg"
	"tasker.example/tasker/internal/pgtest"
)

// The database goes away under a server and its worker, and comes back. Nothing
// is restarted, nothing is lost, and meanwhile the answers say what is wrong.
func TestTheDatabaseGoesAwayAndComesBack(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	pg, err := devpg.Start(t.Context(), devpg.Options{DataDir: dir})
	must(t, err)
	database, port := pg.URL(), portOf(t, pg.URL())
	code, _, errs := run(t, nil, "migrate", "up", "--database-url", database)
	if code != 0 {
		t.Fatal(errs)
	}
	server := serve(t, database)
	base := server.url()
	c := newClient(t, base)
	startWorker(t, base, "")
	var made []tasker.ID
	for range 40 {
		task, err := c.CreateTask(t.Context(), apiv1.CreateTask{Namespace: "order_processing", Name: "diamond"})
		must(t, err)
		made = append(made, readID(t, task.TaskUUID))
	}
	must(t, pg.Stop(t.Context()))
	await(t, "the server to notice", func() bool { return ready(t, base) == http.StatusServiceUnavailable })
	if _, err := c.Task(t.Context(), made[0]); tasker.CodeOf(err) != tasker.Unavailable {
		t.Errorf("without a database a read gives %v", err)
	}
	if got := status(t, base+"/health/live"); got != http.StatusOK {
		t.Errorf("without a database the server seems dead: %d", got)
	}

	pg, err = devpg.Start(t.Context(), devpg.Options{DataDir: dir, Port: port})
	must(t, err)
	t.Cleanup(func() {
		server.stop()
		if err := pg.Stop(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	await(t, "the server to be ready again", func() bool { return ready(t, base) == http.StatusOK })
	for _, task := range made {
		awaitStatus(t, c, task, "complete")
	}
	found, err := pgtest.Violations(t.Context(), pg.URL())
	must(t, err)
	for _, v := range found {
		t.Error(v)
	}
}

func portOf(t *testing.T, text string) int {
	t.Helper()
	u, err := url.Parse(text)
	must(t, err)
	port, err := strconv.Atoi(u.Port())
	must(t, err)
	return port
}

func ready(t *testing.T, base string) int { return status(t, base+"/health/ready") }

func status(t *testing.T, address string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	must(t, err)
	answer, err := (&http.Client{Timeout: patience}).Do(request)
	must(t, err)
	must(t, answer.Body.Close())
	return answer.StatusCode
}
