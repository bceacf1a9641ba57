package templatefile_test

import (
	"encoding/json"
	"strings"
	"testing"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/templatefile"
)

// How many items may fail is a number or a percentage, and is kept as it is.
func TestATolerance(t *testing.T) {
	t.Parallel()
	const doc = `{"namespace_name": "a", "name": "a", "version": "1.0.0", "steps": [{"name": "each", "type": "map", "over": "[1]", "handler": {"callable": "h"}, "tolerate": TOLERATE}]}`
	for text, want := range map[string]tasker.FailureTolerance{"5": {Items: 5}, "10000": {Items: 10000}, `"1%"`: {Percent: 1}, `"100%"`: {Percent: 100}, `"all_but_one"`: {AllButOne: true}} {
		parsed, _, err := templatefile.ParseJSON([]byte(strings.ReplaceAll(doc, "TOLERATE", text)))
		if err != nil {
			t.Fatal(text, err)
		}
		got := parsed.Steps[0].Tolerate
		kept, err := json.Marshal(got)
		if got != want || err != nil || string(kept) != text {
			t.Errorf("%s is %+v, kept as %s, %v", text, got, kept, err)
		}
	}
	for _, text := range []string{`"0%"`, `"101%"`, `"5"`, `" 5%"`, `5.5`, `"all"`, `0`, `-1`, `10001`, `true`} {
		if _, _, err := templatefile.ParseJSON([]byte(strings.ReplaceAll(doc, "TOLERATE", text))); err == nil || !strings.Contains(err.Error(), "tolerate") {
			t.Errorf("%s: %v", text, err)
		}
	}
	if n := (tasker.FailureTolerance{Percent: 2}).Max(149); n != 2 {
		t.Errorf("2%% of 149 are %d", n)
	}
	if most := (tasker.FailureTolerance{AllButOne: true}); most.Max(149) != 148 || most.Max(0) != 0 {
		t.Errorf("all but one of 149 are %d, of 0 %d", most.Max(149), most.Max(0))
	}
	var into tasker.FailureTolerance
	if err := json.Unmarshal([]byte(`"many"`), &into); err == nil {
		t.Error("many is a tolerance")
	}
}
