package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/devpg"
	"tasker.example/tasker/internal/pgtest"
)

// A child fails for good while its parent waits. Server, worker and database stop and start
// again; then the child is repaired, and the parent goes on, once.
func TestAParentWaitsForItsChildThroughARestartOfEverything(t *testing.T) {
	t.Parallel()
	dir, up := dataDir(t), filepath.Join(t.TempDir(), "up")
	pg, err := devpg.Start(t.Context(), devpg.Options{DataDir: dir})
	must(t, err)
	port := portOf(t, pg.URL())
	if code, _, errs := run(t, nil, "migrate", "up", "--database-url", pg.URL()); code != 0 {
		t.Fatal(errs)
	}
	server := serve(t, pg.URL())
	w := startWorker(t, server.url(), up)
	c := newClient(t, server.url())
	made, err := c.CreateTask(t.Context(), apiv1.CreateTask{Namespace: "order_processing", Name: "ship_parcel"})
	must(t, err)
	parent := readID(t, made.TaskUUID)
	var tree apiv1.TaskTree
	await(t, "the child to fail", func() bool {
		tree, err = c.TaskTree(t.Context(), parent)
		must(t, err)
		return len(tree.Tasks) == 2 && tree.Tasks[1].Task.Status == "error"
	})
	child := readID(t, tree.Tasks[1].Task.TaskUUID)
	_, err = c.EntryOfTask(t.Context(), child)
	must(t, err)

	w.stop()
	server.stop()
	must(t, pg.Stop(t.Context()))
	pg, err = devpg.Start(t.Context(), devpg.Options{DataDir: dir, Port: port})
	must(t, err)
	server = serve(t, pg.URL())
	t.Cleanup(func() {
		server.stop()
		if err := pg.Stop(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	url := server.url()
	startWorker(t, url, up)
	c = newClient(t, url)
	awaitStatus(t, c, parent, "waiting_for_dependencies")
	wantSteps(t, c, parent, "pack complete 1/3, order pending 0/3, ship pending 0/3")
	if said := ctl(t, url, "explain", parent.String()); !strings.Contains(said, child.String()+", whose step step_2 failed for good") {
		t.Errorf("the parent is explained as %s", said)
	}
	if said := ctl(t, url, "task", "tree", parent.String()); !strings.Contains(said, "order (waits)") || !strings.Contains(said, child.String()) {
		t.Errorf("the tree is %s", said)
	}

	must(t, os.WriteFile(up, nil, 0o600))
	two := stepNamed(t, c, child, "step_2")
	ctl(t, url, "task", "reset-step", child.String(), two.StepUUID, "--reason", "the database is back", "--reset-by", "ann")
	awaitStatus(t, c, parent, "complete")
	awaitStatus(t, c, child, "complete")
	wantSteps(t, c, parent, "pack complete 1/3, order complete 0/3, ship complete 1/3")
	var received struct{ Order map[string]json.RawMessage }
	ship := stepNamed(t, c, parent, "ship")
	if err := json.Unmarshal(results(t, ship)["received"], &received); err != nil || received.Order["step_3"] == nil {
		t.Errorf("the step behind the child received %s (%v)", ship.Results, err)
	}
	for _, step := range []string{"order", "ship"} {
		moves, err := c.StepTransitions(t.Context(), parent, readID(t, stepNamed(t, c, parent, step).StepUUID), client.Page{Limit: 100})
		must(t, err)
		n := 0
		for _, m := range moves {
			if m.To == "complete" {
				n++
			}
		}
		if n != 1 {
			t.Errorf("step %s completed %d times: %+v", step, n, moves)
		}
	}
	if tree, err = c.TaskTree(t.Context(), parent); err != nil || len(tree.Tasks) != 2 {
		t.Errorf("%d tasks at the end (%v)", len(tree.Tasks), err)
	}
	found, err := pgtest.Violations(t.Context(), pg.URL())
	must(t, err)
	for _, v := range found {
		t.Error(v)
	}
}

func results(t *testing.T, s apiv1.Step) map[string]json.RawMessage {
	t.Helper()
	var doc struct{ Result map[string]json.RawMessage }
	must(t, json.Unmarshal(s.Results, &doc))
	return doc.Result
}
