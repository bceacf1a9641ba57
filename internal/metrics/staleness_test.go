package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/metrics"
)

// A namespace without such tasks is shown as 0; while the database cannot be read the last counts stay.
func TestTasksNearStalenessAreCounted(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	list, failing := []tasker.StalenessCount{{Namespace: "shop", Health: tasker.Warning, Tasks: 11}}, error(nil)
	if err := p.ObserveStaleness(func(context.Context) ([]tasker.StalenessCount, error) { return list, failing }); err != nil {
		t.Fatal(err)
	}
	p.collect() // makes the series of namespaces
	want := map[string]string{"tasker.staleness.tasks warning shop": "11", "tasker.staleness.tasks stale shop": "0", "tasker.staleness.tasks warning default": "0"}
	p.want(want)
	failing = errors.New("no database")
	p.want(want)
	list, failing = nil, nil
	for i := range 150 {
		list = append(list, tasker.StalenessCount{Namespace: fmt.Sprintf("n-%03d", i), Health: tasker.Stale, Tasks: int64(1000 - i)})
	}
	p.want(map[string]string{
		"tasker.staleness.tasks stale n-099": "901", "tasker.staleness.tasks stale n-100": "",
		"tasker.staleness.tasks stale " + metrics.OtherNamespaces: fmt.Sprint(50*900 - 49*50/2),
	})
}
