package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/enginetest"
)

// watch creates tasks of the template chain in a namespace that have been in process for this
// many minutes of 60.
func (h *harness) watch(namespace string, tasks, minutes int) {
	h.Helper()
	for range tasks {
		id := h.CreateWith(tasker.NewTask{Namespace: namespace, Name: "chain"})
		h.Exec(`UPDATE tasker.tasks SET state_since = now() - make_interval(mins => $2), created_at = now() - make_interval(mins => $2),
			warn_at = now() + make_interval(mins => 48 - $2), stale_at = now() + make_interval(mins => 60 - $2) WHERE task_uuid = $1`, id, minutes)
	}
}

// More tasks are stale than a page holds, and the warnings behind them are still found.
func TestStalenessIsFilteredAndPaged(t *testing.T) {
	t.Parallel()
	h, _ := guarded(t)
	for _, namespace := range []string{"shop", "attic"} {
		h.Space = namespace
		h.Template("chain", enginetest.Step("run"))
	}
	h.watch("shop", 110, 70)
	h.watch("shop", 7, 50)
	h.watch("attic", 3, 50)
	h.watch("attic", 2, 10)
	all, attic := h.bearer("all", "viewer@*"), h.bearer("attic", "viewer@attic")
	read := func(caller, query string) []tasker.StaleTask {
		t.Helper()
		return want[[]tasker.StaleTask](h, http.StatusOK, "GET", "/v1/dlq/staleness"+query, nil, caller)
	}
	for _, tt := range []struct {
		caller, query string
		want          map[string]int
	}{
		{all, "", map[string]int{"shop stale": 100}},
		{all, "?health_status=warning", map[string]int{"shop warning": 7, "attic warning": 3}},
		{all, "?health_status=healthy", map[string]int{"attic healthy": 2}},
		{all, "?namespace=attic", map[string]int{"attic warning": 3, "attic healthy": 2}},
		{all, "?namespace=shop&name=other", map[string]int{}},
		{all, "?namespace=shop&name=chain&health_status=warning", map[string]int{"shop warning": 7}},
		{all, "?offset=109&limit=4", map[string]int{"shop stale": 1, "shop warning": 3}},
		{all, "?offset=122", map[string]int{}},
		{attic, "?limit=1000", map[string]int{"attic warning": 3, "attic healthy": 2}},
	} {
		got := map[string]int{}
		for _, l := range read(tt.caller, tt.query) {
			got[l.Namespace+" "+string(l.Health)]++
		}
		if fmt.Sprint(got) != fmt.Sprint(tt.want) {
			t.Errorf("%s: %v, want %v", tt.query, got, tt.want)
		}
	}
	seen := map[string]bool{}
	for offset := 0; offset < 122; offset += 50 {
		for _, l := range read(all, fmt.Sprintf("?limit=50&offset=%d", offset)) {
			seen[l.TaskUUID.String()] = true
		}
	}
	if len(seen) != 122 {
		t.Errorf("the pages have %d tasks, want 122", len(seen))
	}
	got := h.send("GET", "/v1/dlq/staleness?health_status=ill", nil, all)
	if allowed := "must be one of stale, warning, healthy, not"; got.status != http.StatusBadRequest || !strings.Contains(got.text, allowed) {
		t.Errorf("%d %s, want 400 with %q", got.status, got.text, allowed)
	}
}
