package e2e

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/devpg"
	"tasker.example/tasker/internal/pgtest"
)

// An installation is a server and a worker on a PostgreSQL of their own.
type installation struct {
	*testing.T
	data       string
	port       int
	databaseUp string // exists when the handlers can do their work
	pg         *devpg.Server
	server     *process
	worker     *process
	client     *client.Client
}

func newInstallation(t *testing.T) *installation {
	t.Helper()
	in := &installation{T: t, data: dataDir(t), databaseUp: filepath.Join(t.TempDir(), "up")}
	in.startDatabase()
	in.port = portOf(t, in.pg.URL())
	if code, _, errs := run(t, nil, "migrate", "up", "--database-url", in.pg.URL()); code != 0 {
		t.Fatal(errs)
	}
	in.start()
	t.Cleanup(func() {
		in.server.stop()
		if err := in.pg.Stop(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	return in
}

func (in *installation) startDatabase() {
	in.Helper()
	pg, err := devpg.Start(in.Context(), devpg.Options{DataDir: in.data, Port: in.port})
	must(in.T, err)
	in.pg = pg
}

func (in *installation) start() {
	in.Helper()
	in.server = serve(in.T, in.pg.URL())
	in.worker = startWorker(in.T, in.server.url(), in.databaseUp)
	in.client = newClient(in.T, in.server.url())
}

func (in *installation) create(name string) tasker.ID {
	in.Helper()
	made, err := in.client.CreateTask(in.Context(), apiv1.CreateTask{Namespace: "order_processing", Name: name})
	must(in.T, err)
	return readID(in.T, made.UUID.String())
}

// The database goes away under a server and its worker and comes back: nothing is lost, and meanwhile
// the answers say what is wrong. Then all of them stop and start again while a parent waits for a
// failed child. The child is repaired, and the parent continues, once.
func TestOutagesAndRestartsLoseNothing(t *testing.T) {
	t.Parallel()
	in := newInstallation(t)
	base := in.server.url()
	var made []tasker.ID
	for range 20 {
		made = append(made, in.create("diamond"))
	}
	must(t, in.pg.Stop(t.Context()))
	await(t, "the server to notice", func() bool { return ready(t, base) == http.StatusServiceUnavailable })
	if _, err := in.client.Task(t.Context(), made[0]); tasker.CodeOf(err) != tasker.Unavailable {
		t.Errorf("without a database a read gives %v", err)
	}
	if got := status(t, base+"/health/live"); got != http.StatusOK {
		t.Errorf("without a database the server seems dead: %d", got)
	}
	in.startDatabase()
	await(t, "the server to be ready again", func() bool { return ready(t, base) == http.StatusOK })
	for _, task := range made {
		awaitStatus(t, in.client, task, "complete")
	}

	parent := in.create("ship_parcel")
	var tree tasker.TaskTree
	await(t, "the child to fail", func() bool {
		var err error
		tree, err = in.client.TaskTree(t.Context(), parent)
		must(t, err)
		return len(tree.Tasks) == 2 && tree.Tasks[1].Task.State == "error"
	})
	child := readID(t, tree.Tasks[1].Task.UUID.String())
	in.worker.stop()
	in.server.stop()
	must(t, in.pg.Stop(t.Context()))
	in.startDatabase()
	in.start()
	awaitStatus(t, in.client, parent, "waiting_for_dependencies")
	wantSteps(t, in.client, parent, "pack complete 1/3, order pending 0/3, ship pending 0/3")
	if said := ctl(t, in.server.url(), "explain", parent.String()); !strings.Contains(said, child.String()+", whose step step_2 failed for good") {
		t.Errorf("the parent is explained as %s", said)
	}
	must(t, os.WriteFile(in.databaseUp, nil, 0o600))
	two := stepNamed(t, in.client, child, "step_2")
	ctl(t, in.server.url(), "task", "reset-step", child.String(), two.UUID.String(), "--reason", "the database is back", "--reset-by", "ann")
	awaitStatus(t, in.client, parent, "complete")
	wantSteps(t, in.client, parent, "pack complete 1/3, order complete 0/3, ship complete 1/3")
	var received struct{ Order map[string]json.RawMessage }
	ship := stepNamed(t, in.client, parent, "ship")
	if err := json.Unmarshal(results(t, ship)["received"], &received); err != nil || received.Order["step_3"] == nil {
		t.Errorf("the step behind the child received %s (%v)", ship.Results, err)
	}
	found, err := pgtest.Violations(t.Context(), in.pg.URL()) // such as a step that completed twice
	must(t, err)
	for _, v := range found {
		t.Error(v)
	}
}

func results(t *testing.T, s tasker.Step) map[string]json.RawMessage {
	t.Helper()
	var doc struct{ Result map[string]json.RawMessage }
	must(t, json.Unmarshal(s.Results, &doc))
	return doc.Result
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
