package templatefile

import (
	"strings"
	"testing"

	"tasker.example/tasker"

	"github.com/google/go-cmp/cmp"
)

// The specification shows parts of templates. Each is read as the part of a whole
// template that it is.
func TestExamplesOfTheDocuments(t *testing.T) {
	const whole = "namespace_name: n\nname: t\nversion: 1.0.0\nsteps:\n  - name: a\n    handler: {callable: h}\n"
	inStep := func(part string) string {
		return whole + "    " + strings.ReplaceAll(strings.TrimSpace(part), "\n", "\n    ") + "\n"
	}
	read := func(name string) string { return string(readFile(t, "testdata/specification/"+name)) }

	retry := mustParse(t, inStep(read("retry.yaml")))
	if diff := cmp.Diff(tasker.DefaultRetry(), retry.Steps[0].Retry); diff != "" {
		t.Errorf("the documents' retry is not the default (-default +documents'):\n%s", diff)
	}
	want := tasker.Lifecycle{MaxWaitingForDependenciesMinutes: 120, MaxWaitingForRetryMinutes: 45, MaxStepsInProcessMinutes: 60}
	if diff := cmp.Diff(want, mustParse(t, whole+read("lifecycle.yaml")).Lifecycle); diff != "" {
		t.Errorf("lifecycle (-want +got):\n%s", diff)
	}
	want.MaxDurationMinutes = 1440
	if diff := cmp.Diff(want, mustParse(t, whole+read("lifecycle_with_duration.yaml")).Lifecycle); diff != "" {
		t.Errorf("lifecycle (-want +got):\n%s", diff)
	}

	template := mustParse(t, read("test_template.yaml"))
	for env, want := range map[string][2]int{"": {30, 3}, "production": {30, 3}, "test": {10, 2}} {
		for _, s := range template.ForEnvironment(env).Steps {
			if got := [2]int{s.TimeoutSeconds, s.Retry.MaxAttempts}; got != want {
				t.Errorf("environment %q, step %s: timeout and attempts %v, want %v", env, s.Name, got, want)
			}
		}
	}
}
